"""Several gateways in front of the same engines, which keep one account."""

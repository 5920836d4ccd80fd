"""What each client has received, and what the gateways share of it."""

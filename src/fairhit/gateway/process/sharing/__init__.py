"""The account that several gateways keep together: how it is written down, where, and when."""

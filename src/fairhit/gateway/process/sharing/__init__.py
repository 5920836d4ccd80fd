"""The shared ledger of several gateways: its format, where it is stored, and when it is exchanged."""

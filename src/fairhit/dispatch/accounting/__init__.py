"""Ledgers of clients' service and deficits, and the estimates that engines' reports correct."""

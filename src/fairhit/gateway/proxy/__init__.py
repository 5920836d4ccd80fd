"""Proxying: a request from its complete body to the end of the engine's response."""

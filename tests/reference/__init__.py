"""Naive oracles: slow, short and obviously right."""

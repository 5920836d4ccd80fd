"""Traces small enough to check by hand, with the decision that each algorithm must take at each step."""

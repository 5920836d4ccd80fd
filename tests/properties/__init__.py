"""Hypothesis finds the counter-example, if there is one."""

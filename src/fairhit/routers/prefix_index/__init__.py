"""Indices that say how much of a prompt each engine has cached."""

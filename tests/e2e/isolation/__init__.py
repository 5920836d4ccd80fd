"""Caches that clients do not share, with a real engine."""

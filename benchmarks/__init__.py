"""Measurements: each writes raw rows with seed, commit and machine to benchmarks/results/."""

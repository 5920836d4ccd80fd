"""Fuzzing: bytes of any kind against the seams where bytes are read; `python -m tests.fuzz NAME`."""

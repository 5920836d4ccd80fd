"""Stands in for a package that vLLM 0.15 imports and the newest does without; nothing here calls it."""


class Cache:
    """Imported by name."""

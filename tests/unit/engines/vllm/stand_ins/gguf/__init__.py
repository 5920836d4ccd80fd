"""Stands in for a package that vLLM 0.15 to 0.20 import; nothing here calls it."""


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})

"""Counts the bytes that httptools parses: few, since repeated heads come from the head cache."""

from typing import Any


class Parsing:
    """A parser, and all that it is given."""

    def __init__(self, parser: Any) -> None:
        self.parsed: list[bytes] = []
        self._parser = parser

    def feed_data(self, data: bytes) -> None:
        self.parsed.append(data)
        self._parser.feed_data(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

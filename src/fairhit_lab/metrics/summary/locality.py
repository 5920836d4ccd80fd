"""Input served by the prefix caches, and the cost of memory pressure."""

from collections.abc import Iterable
from typing import NamedTuple


class Locality(NamedTuple):
    """Tokens. `again` was computed a second time, after a preemption, and is in no client's service."""

    extend_len: int = 0
    cached_len: int = 0
    again_len: int = 0
    evicted_len: int = 0

    def hit_rate(self) -> float | None:
        """Cached tokens of all input tokens, each request once; None without input."""
        input_len = self.extend_len + self.cached_len
        return self.cached_len / input_len if input_len else None

    def as_dict(self) -> dict[str, float | int | None]:
        """The fields of the summary."""
        return {
            "hit_rate": self.hit_rate(),
            "recomputed_tokens": self.again_len,
            "evicted_tokens": self.evicted_len,
        }


def together(parts: Iterable[Locality]) -> Locality:
    """The sum of them. O(parts)."""
    return Locality(*(sum(column) for column in zip(*parts, strict=True)))

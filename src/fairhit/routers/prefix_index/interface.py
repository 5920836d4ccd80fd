"""What a router's host asks of an index of the workers' prefixes, whatever it is made of."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Unit, WorkerId


class PrefixIndex(Protocol):
    """Which worker has cached how much of a prompt: `ChunkIndex` for bytes, `TokenIndex` for tokens."""

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up."""
        ...

    def drop_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it had."""
        ...

    def covered(self, units: int, /) -> int:
        """Bytes of the text, or of the tokens, that the first `units` units of a prompt stand for."""
        ...

    def match(self, units: Sequence[Unit], /) -> PrefixMatches:
        """How many leading units each worker holds. Changes no answer."""
        ...

    def insert(self, worker: WorkerId, units: Sequence[Unit], /) -> int:
        """`worker` has these units, or will; how many leading ones it counts as having: all, if they fit."""
        ...


@runtime_checkable
class Admitting(Protocol):
    """An index that wants to know when a prompt was admitted: from then on silence tells something."""

    def admitted(self, worker: WorkerId, units: Sequence[Unit], /) -> None:
        """`worker` has begun to answer."""
        ...

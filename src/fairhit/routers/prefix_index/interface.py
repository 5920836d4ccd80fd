"""The index of the workers' cached prefixes as the dispatcher uses it, for any kind of unit."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Unit, WorkerId


class PrefixIndex(Protocol):
    """Cached prefixes per worker, in chunks of bytes (`approximate`) or in blocks of tokens (`precise`)."""

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, about whose cache nothing is known."""
        ...

    def drop_worker(self, worker: WorkerId) -> None:
        """Remove `worker` and all entries of its cache."""
        ...

    def covered(self, units: int, /) -> int:
        """Return the length in bytes of the first `units` units of a prompt, as text or as token numbers."""
        ...

    def match(self, units: Sequence[Unit], /) -> PrefixMatches:
        """Find how many leading units each worker holds. Pure."""
        ...

    def insert(self, worker: WorkerId, units: Sequence[Unit], /) -> int:
        """Enter the units of a prompt sent to `worker`; return how many leading ones fit its capacity."""
        ...


@runtime_checkable
class Admitting(Protocol):
    """An index that uses the time of admission: entries not confirmed soon after it are removed."""

    def admitted(self, worker: WorkerId, units: Sequence[Unit], /) -> None:
        """Note that `worker` has begun to answer the prompt with these units."""
        ...

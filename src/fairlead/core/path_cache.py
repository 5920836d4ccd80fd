"""What a policy asks of a cache that is a tree of tokens: ours, or an engine's own."""

from typing import Any, Protocol, runtime_checkable

from fairlead.core.radix_tree import TreeListener
from fairlead.core.runs import Runs


@runtime_checkable
class PathCache(Protocol):
    """A `RadixTree` is one; a `BlockCache`, which knows hashes and no tokens, is none."""

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """How many units of a prompt are cached is the second half of the answer. Pure."""
        ...

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        ...

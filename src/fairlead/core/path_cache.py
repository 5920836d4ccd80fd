"""What a policy asks of a cache: a tree of tokens or a set of block hashes, ours or an engine's own."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fairlead.core.block_cache import BlockListener
from fairlead.core.radix_tree import TreeListener
from fairlead.core.request import Unit
from fairlead.core.runs import Runs


@runtime_checkable
class PathCache(Protocol):
    """A `RadixTree` is one; a `BlockCache`, which knows hashes and no tokens, is none."""

    @property
    def block_size(self) -> int:
        """Tokens of a unit of prompts."""
        ...

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """How many units of a prompt are cached is the second half of the answer. Pure."""
        ...

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        ...


class HashCache(Protocol):
    """A `BlockCache` is one, and so is a view of the blocks that an engine has cached."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    def match_len(self, block_hashes: Sequence[Unit], /) -> int:
        """How many of a prompt's blocks are cached, from the first on. Pure."""
        ...

    def __contains__(self, block_hash: Unit, /) -> bool: ...

    def listen(self, listener: BlockListener) -> None:
        """From now on `listener` hears of every change."""
        ...


# Protocols: compiled code takes no other class where a class is named, and engines bring their own.
Cache: TypeAlias = PathCache | HashCache

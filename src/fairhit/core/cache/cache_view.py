"""What a policy asks of a cache: a tree of tokens or a set of block hashes, ours or an engine's own."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fairhit.core.cache.block_set import BlockListener
from fairhit.core.cache.radix_tree import TreeListener
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit


@runtime_checkable
class PathCache(Protocol):
    """A cache that is a tree of tokens: a `RadixTree`, or an engine's own."""

    @property
    def block_size(self) -> int:
        """Tokens of a unit of prompts."""
        ...

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """Return a node, and how many units of the prompt are cached. Pure."""
        ...

    def listen(self, listener: TreeListener) -> None:
        """Notify `listener` of every change from now on."""
        ...


class HashCache(Protocol):
    """A cache that is a set of block hashes: a `BlockCache`, or a view of what an engine has cached."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    def match_len(self, block_hashes: Sequence[Unit], /) -> int:
        """How many of a prompt's blocks are cached, from the first on. Pure."""
        ...

    def __contains__(self, block_hash: Unit, /) -> bool: ...

    def listen(self, listener: BlockListener) -> None:
        """Notify `listener` of every change from now on."""
        ...


# Protocols: compiled code takes no other class where a class is named, and engines bring their own.
Cache: TypeAlias = PathCache | HashCache

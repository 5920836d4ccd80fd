"""The cache as a policy sees it: a tree of tokens or a set of block hashes, simulated or an engine's."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fairhit.core.cache.block_set import BlockListener
from fairhit.core.cache.radix_tree import TreeListener, WantedLen
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit


@runtime_checkable
class PathCache(Protocol):
    """A cache that is a tree of tokens: a `RadixTree`, or a view of an engine's tree."""

    @property
    def block_size(self) -> int:
        """Tokens per unit of a prompt."""
        ...

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """Return the node at which the match ends, and the cached units of the prompt. Pure."""
        ...

    def listen(self, listener: TreeListener) -> None:
        """Notify `listener` of every change from now on."""
        ...


class HashCache(Protocol):
    """A cache that is a set of block hashes: a `BlockCache`, or a view of an engine's block map."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    def match_len(self, block_hashes: Sequence[Unit], /) -> int:
        """Return how many leading blocks of a prompt are cached. Pure."""
        ...

    def __contains__(self, block_hash: Unit, /) -> bool: ...

    def listen(self, listener: BlockListener) -> None:
        """Notify `listener` of every change from now on."""
        ...


@runtime_checkable
class KeepsPaths(Protocol):
    """A tree of tokens that can evict what waiting prompts want after all else."""

    def keep(self, wanted_len: WantedLen) -> None:
        """Ask `wanted_len`, from now on, which tokens to evict last."""
        ...


@runtime_checkable
class KeepsBlocks(Protocol):
    """A set of blocks whose engine can evict what waiting prompts want after all else."""

    def keep(self, is_wanted: Callable[[Unit], bool]) -> None:
        """Ask `is_wanted`, from now on, which blocks to evict last."""
        ...


@runtime_checkable
class MeasuresPrefixes(Protocol):
    """A cache whose units differ in size: pieces of a text, whose tokens are estimated."""

    def prefix_len(self, units: int, /) -> int:
        """Return the tokens in the first `units` units of a prompt, as estimated now. O(1)."""
        ...


# Protocols, as compiled code accepts no other class where a class is named, and engines have their own.
Cache: TypeAlias = PathCache | HashCache

"""Block ids of published traces as segments: blocks that follow one another become one segment.

A published prompt is a list of block ids; equal leading ids mean an equal prefix. A block then always
has the same block before it, so what grows at its end is one segment, and a prompt of a hundred blocks
is a few (segment, length) pairs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.workloads.fields import WrongField
from fairlead.workloads.rows import Piece


@dataclass(slots=True)
class _Chain:
    """The blocks at depths `first` .. `end` - 1 of every prompt that has them, as one segment."""

    name: str
    before: list[Piece]
    first: int
    end: int
    open: bool  # its last block is full, so what follows may have the same segment


class Blocks:
    """Turns the block ids of one namespace into pieces of `size` tokens a block, divided by `scale`."""

    def __init__(self, label: str, *, size: int, scale: int = 1) -> None:
        assert 1 <= scale <= size, (scale, size)
        self._label, self._size, self._scale = label, size, scale
        self._where: dict[int, tuple[_Chain, int]] = {}
        self._chains = 0

    def pieces(self, ids: Sequence[int], tokens: int) -> list[Piece]:
        """The prompt of `tokens` tokens in these blocks, of which the last may not be full.

        O(log blocks + new blocks + pieces). Raises WrongField if equal ids are not equal prefixes.
        """
        full, total = tokens // self._size, max(1, tokens // self._scale)
        if len(ids) != -(-tokens // self._size):
            raise WrongField(
                "hash_ids", f"{-(-tokens // self._size)} blocks for {tokens} tokens", len(ids)
            )
        known = bisect_left(ids, True, key=lambda block: block not in self._where)
        chain = self._last_known(ids, known)
        if known < full:
            if chain is None or not chain.open or chain.end != known:
                chain = self._chain(self._pieces_to(chain, known, total), known, full, opened=True)
            self._register(chain, ids, known, full)
            known = full
        if known < len(ids):
            chain = self._chain(self._pieces_to(chain, known, total), known, len(ids), opened=False)
            self._register(chain, ids, known, len(ids))
        return self._pieces_to(chain, len(ids), total)

    def _last_known(self, ids: Sequence[int], known: int) -> _Chain | None:
        if not known:
            return None
        chain, depth = self._where[ids[known - 1]]
        if depth != known - 1:
            raise WrongField(
                "hash_ids", f"block {ids[known - 1]} at depth {depth} as before", known - 1
            )
        return chain

    def _pieces_to(self, chain: _Chain | None, depth: int, total: int) -> list[Piece]:
        """What stands in front of `depth`, in the chain that the block before it belongs to."""
        if chain is None:
            return []
        length = min(self._tokens(depth), total) - self._tokens(chain.first)
        return [*chain.before, (chain.name, length)]

    def _tokens(self, depth: int) -> int:
        return depth * self._size // self._scale

    def _chain(self, before: list[Piece], first: int, end: int, *, opened: bool) -> _Chain:
        self._chains += 1
        return _Chain(f"{self._label}{self._chains}", before, first, end, opened)

    def _register(self, chain: _Chain, ids: Sequence[int], first: int, end: int) -> None:
        for depth in range(first, end):
            if self._where.setdefault(ids[depth], (chain, depth)) != (chain, depth):
                raise WrongField("hash_ids", "each block behind one other block only", ids[depth])
        chain.end = end

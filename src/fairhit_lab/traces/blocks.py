"""Block ids of published traces as segments: blocks that follow one another become one segment.

A published prompt is a list of block ids; equal leading ids mean an equal prefix. A block then always
has the same block before it, so what grows at its end is one segment, and a prompt of a hundred blocks
is a few (segment, length) pairs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from fairhit_lab.traces.fields import WrongField
from fairhit_lab.traces.rows import Piece


@dataclass(slots=True)
class _Chain:
    """The blocks `ids` of every prompt that has them, from depth `first` on, as one segment."""

    name: str
    above: "_Chain | None"  # what it stands behind, at whatever depth of that
    before: list[Piece]
    first: int
    ids: list[int]


class Blocks:
    """Turns the block ids of one namespace into pieces of `size` tokens a block, divided by `scale`."""

    def __init__(self, label: str, *, size: int, scale: int = 1) -> None:
        assert 1 <= scale <= size, (scale, size)
        self._label, self._size, self._scale = label, size, scale
        self._where: dict[int, _Chain] = {}
        self._chains = 0

    def pieces(self, ids: Sequence[int], tokens: int) -> list[Piece]:
        """The prompt of `tokens` tokens in these blocks, of which the last may not be full.

        O(new blocks + pieces), and at C speed O(blocks). Raises WrongField if equal ids are not equal
        prefixes.
        """
        full, total = tokens // self._size, max(1, tokens // self._scale)
        if len(ids) != -(-tokens // self._size):
            raise WrongField(
                "hash_ids", f"{-(-tokens // self._size)} blocks for {tokens} tokens", len(ids)
            )
        known = bisect_left(ids, True, key=lambda block: block not in self._where)
        chain = self._where[ids[known - 1]] if known else None
        _require_same(chain, ids, known)
        if known < full:
            if chain is None or chain.first + len(chain.ids) != known:
                chain = self._below(chain, known, total)
            self._extend(chain, ids[known:full])
            known = full
        if known < len(ids):
            chain = self._below(chain, known, total)
            self._extend(chain, ids[known:])
        return self._pieces_to(chain, len(ids), total)

    def _pieces_to(self, chain: _Chain | None, depth: int, total: int) -> list[Piece]:
        """Pieces in front of `depth`, in the chain that the block before it belongs to."""
        if chain is None:
            return []
        length = min(self._tokens(depth), total) - self._tokens(chain.first)
        return [*chain.before, (chain.name, length)]

    def _tokens(self, depth: int) -> int:
        return depth * self._size // self._scale

    def _below(self, above: _Chain | None, depth: int, total: int) -> _Chain:
        self._chains += 1
        name = f"{self._label}{self._chains}"
        return _Chain(name, above, self._pieces_to(above, depth, total), depth, [])

    def _extend(self, chain: _Chain, ids: Sequence[int]) -> None:
        for block in ids:
            if block in self._where:
                raise WrongField("hash_ids", "each block behind one other block only", block)
            self._where[block] = chain
        chain.ids.extend(ids)


def _require_same(chain: _Chain | None, ids: Sequence[int], depth: int) -> None:
    """The blocks in front of `depth` are those that stood there whenever the last of them came."""
    while chain is not None:
        if list(ids[chain.first : depth]) != chain.ids[: depth - chain.first]:
            raise WrongField("hash_ids", "each block behind one other block only", ids[depth - 1])
        depth = chain.first
        chain = chain.above

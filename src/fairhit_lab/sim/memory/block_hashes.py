"""The chained hashes of a prompt's blocks, as engines that cache by blocks know a prompt.

A hash stands for its block and all before it. It depends on the tokens alone, not on the process,
and 128 bits of it make a clash of different prefixes no concern.
"""

from collections.abc import Iterator
from hashlib import blake2b

from fairhit.core.cache.token_runs import Run, Runs
from fairhit_lab.traces.trace import TraceRow


def tokens_of(row: TraceRow) -> Runs:
    """What the request's memory holds at its end: prompt, then output.

    Where the row does not say what the output is, it is a segment of the request's own, which no
    prompt can name since those have no bytes for names: it takes room, and nobody matches it.
    """
    known = row.output[: row.output_len] if row.output is not None else Runs(())
    unknown: Run = (b"output of " + row.id.encode(), len(known), row.output_len - len(known))
    return row.prompt + known + Runs((unknown,))


def known_len(row: TraceRow) -> int:
    """How many of those tokens the row itself says. O(1)."""
    output = 0 if row.output is None else min(len(row.output), row.output_len)
    return len(row.prompt) + output


class BlockHashes:
    """The hashes of the full blocks of some tokens, made as far as somebody asks for them."""

    __slots__ = ("_blocks", "_hashes", "tokens")

    def __init__(self, tokens: Runs, *, block_size: int) -> None:
        self.tokens = tokens
        self._blocks = _blocks(tokens, block_size)
        self._hashes: list[bytes] = []

    def first(self, count: int) -> list[bytes]:
        """The first `count` hashes, which must exist. O(new ones + count)."""
        return self.reaching(count)[:count]

    def reaching(self, count: int) -> list[bytes]:
        """All hashes made so far, at least `count` of them; not to be kept. O(new ones)."""
        hashes = self._hashes
        while len(hashes) < count:
            block = next(self._blocks)
            parent = hashes[-1] if hashes else b""
            # The runs of a block are in normal form, so equal tokens have one spelling.
            hashes.append(blake2b(parent + repr(block).encode(), digest_size=16).digest())
        return hashes


def _blocks(tokens: Runs, size: int) -> Iterator[tuple[Run, ...]]:
    """The tokens of each full block, in order. O(runs + blocks)."""
    block: list[Run] = []
    room = size
    for segment, offset, length in tokens.runs:
        at = 0
        while at < length:
            taken = min(room, length - at)
            if isinstance(segment, tuple):
                block.append((segment[offset + at : offset + at + taken], 0, taken))
            else:
                block.append((segment, offset + at, taken))
            at += taken
            room -= taken
            if not room:
                yield tuple(block)
                block, room = [], size

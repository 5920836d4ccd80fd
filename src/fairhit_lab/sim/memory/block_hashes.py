"""The chained hashes of a prompt's blocks, for simulated engines that cache by blocks.

A hash identifies its block and all blocks before it. It depends on the tokens alone, not on the process; with
128 bits collisions can be ignored.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from fairhit.core.cache.token_runs import Run, Runs
from fairhit_lab.traces.trace import TraceRow


def tokens_of(row: TraceRow) -> Runs:
    """Return the tokens in the request's memory at its end: prompt, then output.

    An output that the row does not specify is a segment of the request's own. No prompt can match it, since
    segments of prompts are not named by bytes.
    """
    known = row.output[: row.output_len] if row.output is not None else Runs(())
    unknown: Run = (b"output of " + row.id.encode(), len(known), row.output_len - len(known))
    return row.prompt + known + Runs((unknown,))


def known_len(row: TraceRow) -> int:
    """Return how many of these tokens the row specifies. O(1)."""
    output = 0 if row.output is None else min(len(row.output), row.output_len)
    return len(row.prompt) + output


class BlockHashes:
    """The hashes of the full blocks of some tokens, computed on demand; `known` are the first of them."""

    __slots__ = ("_blocks", "_hashes", "tokens")

    def __init__(self, tokens: Runs, *, block_size: int, known: Sequence[bytes] = ()) -> None:
        self.tokens = tokens
        self._blocks = _blocks(tokens[len(known) * block_size :] if known else tokens, block_size)
        self._hashes: list[bytes] = list(known)

    def first(self, count: int) -> list[bytes]:
        """Return the first `count` hashes, which must exist. O(new ones + count)."""
        return self.reaching(count)[:count]

    def reaching(self, count: int) -> list[bytes]:
        """Return the list of all hashes computed so far, at least `count`; not to be kept. O(new ones)."""
        hashes = self._hashes
        while len(hashes) < count:
            block = next(self._blocks)
            parent = hashes[-1] if hashes else b""
            # The runs of a block are in normal form, so equal tokens have equal runs.
            hashes.append(blake2b(parent + repr(block).encode(), digest_size=16).digest())
        return hashes


def _blocks(tokens: Runs, size: int) -> Iterator[tuple[Run, ...]]:
    """Yield the tokens of each full block, in order. O(runs + blocks)."""
    block: list[Run] = []
    free = size
    for segment, offset, length in tokens.runs:
        at = 0
        while at < length:
            taken = min(free, length - at)
            if isinstance(segment, tuple):
                block.append((segment[offset + at : offset + at + taken], 0, taken))
            else:
                block.append((segment, offset + at, taken))
            at += taken
            free -= taken
            if not free:
                yield tuple(block)
                block, free = [], size

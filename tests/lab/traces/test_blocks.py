"""Block ids as segments: few pieces, equal prefixes, and no trust in ids that cannot be prefixes."""

import pytest

from fairhit_lab.traces.blocks import Blocks
from fairhit_lab.traces.fields import WrongField


def test_blocks_become_few_segments():
    """A conversation grows at its end: full blocks are one segment, a last block in part is its own."""
    blocks = Blocks("m", size=10)

    assert blocks.pieces([1, 2, 3], 25) == [("m1", 20), ("m2", 5)]
    assert blocks.pieces([1, 2, 4, 5], 40) == [("m1", 40)]
    assert blocks.pieces([1, 2, 3], 25) == [("m1", 20), ("m2", 5)]
    assert blocks.pieces([1, 2, 4, 6], 40) == [("m1", 30), ("m3", 10)]
    assert blocks.pieces([1], 10) == [("m1", 10)]
    assert blocks.pieces([1, 2, 4, 5, 7], 45) == [("m1", 40), ("m4", 5)]
    assert blocks.pieces([9], 3) == [("m5", 3)]


def test_scaled_blocks_keep_their_prefixes():
    blocks = Blocks("m", size=512, scale=16)

    assert blocks.pieces([1, 2], 600) == [("m1", 32), ("m2", 5)]
    assert blocks.pieces([1, 3], 1024) == [("m1", 64)]
    assert blocks.pieces([8], 7) == [("m3", 1)]


@pytest.mark.parametrize(
    ("ids", "tokens", "complaint"),
    [
        ([1, 2], 30, "expected 3 blocks for 30 tokens, got 2"),
        ([2, 1], 20, "expected each block behind one other block only, got 1"),
        ([5, 2], 20, "expected each block behind one other block only, got 2"),
        ([1, 6, 2], 30, "expected each block behind one other block only, got 2"),
        ([7, 7], 20, "expected each block behind one other block only, got 7"),
    ],
)
def test_blocks_that_are_no_prefixes_are_refused(ids, tokens, complaint):
    blocks = Blocks("m", size=10)
    blocks.pieces([1, 2], 20)

    with pytest.raises(WrongField, match=complaint):
        blocks.pieces(ids, tokens)

"""Batches are applied in order, duplicates are not; gaps and restarts are detected."""

from array import array
from typing import Any

import msgspec
import pytest

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.gateway.prefix.kv_events.feed import BatchOutcome, Feed
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex


class Scene:
    """A feed of one engine, and the errors it reported."""

    def __init__(self, *, capacity: int = 1000) -> None:
        self.index = PrecisePrefixIndex()
        self.index.add_worker("w")
        self.errors: list[str] = []
        self.feed = Feed(
            index=self.index,
            worker="w",
            block_len=1,
            capacity=capacity,
            on_change=lambda: self.index.learn("w", self.feed.knowledge),
            on_error=self.errors.append,
        )

    def take(
        self, number: int, *events: Any, at: float | None = None, rank: int = 0
    ) -> BatchOutcome:
        return self.feed.receive(number, batch(*events, at=number if at is None else at, rank=rank))

    def has(self, *tokens: int) -> int:
        prompt = BlockedTokens(block_len=1).extended(array("I", tokens).tobytes())
        self.index.check()
        return self.index.match(prompt.chunks).of("w")


def batch(*events: Any, at: float = 0.0, rank: int = 0) -> bytes:
    return msgspec.msgpack.encode([float(at), list(events), rank])


def stored(*tokens: int, parent: int | None = None, group: int | None = None) -> list[Any]:
    """A block for each token, its hash ten times the token."""
    hashes = [10 * token for token in tokens]
    return ["BlockStored", hashes, parent, list(tokens), 1, None, "GPU", None, None, group]


def removed(*hashes: int, group: int | None = None) -> list[Any]:
    return ["BlockRemoved", list(hashes), "GPU", group]


def test_from_the_beginning_all_is_known() -> None:
    scene = Scene()
    assert scene.take(0, stored(1, 2)) is BatchOutcome.APPLIED
    assert scene.take(1, stored(3, parent=20)) is BatchOutcome.APPLIED
    assert scene.feed.knowledge is Knowledge.COMPLETE
    assert scene.has(1, 2, 3, 4) == 3

    scene.take(2, removed(30), removed(20))
    assert scene.has(1, 2, 3) == 1


def test_from_the_middle_something_is_known() -> None:
    scene = Scene()
    scene.take(7, stored(1), stored(5, parent=40))
    assert scene.feed.knowledge is Knowledge.PARTIAL
    assert scene.has(1) == 1
    assert scene.feed.orphaned() == 1

    scene.take(8, ["AllBlocksCleared"])
    assert scene.feed.knowledge is Knowledge.COMPLETE
    assert scene.has(1) == 0


def test_what_was_seen_changes_nothing() -> None:
    scene = Scene()
    scene.take(0, stored(1))
    scene.take(1, stored(2, parent=10))
    assert scene.take(0, stored(1)) is BatchOutcome.DUPLICATE
    scene.take(2, removed(10))
    assert scene.has(1) == 0


def test_what_is_missing_is_noticed_and_nothing_taken() -> None:
    scene = Scene()
    scene.take(0, stored(1))
    assert scene.take(2, stored(3)) is BatchOutcome.GAP
    assert scene.has(3) == 0
    assert scene.take(1, stored(2)) is BatchOutcome.APPLIED
    assert scene.take(2, stored(3)) is BatchOutcome.APPLIED


def test_a_low_number_of_a_later_time_is_another_engine() -> None:
    scene = Scene()
    for number in range(5):
        scene.take(number, stored(number + 1))
    assert scene.take(0, stored(9), at=100.0) is BatchOutcome.RESTARTED
    assert (scene.has(1), scene.feed.knowledge) == (0, Knowledge.NONE)
    assert scene.take(0, stored(9), at=100.0) is BatchOutcome.APPLIED
    assert (scene.has(9), scene.feed.knowledge) == (1, Knowledge.COMPLETE)
    assert scene.feed.counts.restarts == 1


def test_the_last_batch_tells_whether_it_is_the_same_engine() -> None:
    scene = Scene()
    scene.take(0, stored(1))
    assert scene.feed.is_last(0, batch(stored(1), at=0))
    assert not scene.feed.is_last(0, batch(stored(1), at=50.0))
    assert not scene.feed.is_last(1, batch(stored(1), at=0))

    scene.feed.mark_stale()
    scene.feed.mark_stale()
    assert scene.feed.knowledge is Knowledge.PARTIAL
    scene.feed.mark_current()
    assert scene.feed.knowledge is Knowledge.COMPLETE


def test_doubt_of_what_was_partly_known_does_not_become_certainty() -> None:
    scene = Scene()
    scene.take(3, stored(1))
    scene.feed.mark_stale()
    scene.feed.mark_current()
    assert scene.feed.knowledge is Knowledge.PARTIAL


def test_what_cannot_be_read_is_counted_and_the_rest_goes_on() -> None:
    scene = Scene()
    scene.take(0, stored(1))
    assert scene.feed.receive(1, b"\xc1") is BatchOutcome.APPLIED
    assert scene.take(2, ["BlockStored", [70], None, [-1], 1], stored(2)) is BatchOutcome.APPLIED
    assert scene.take(3, ["BlockStored", [70, 80], None, [7, 8, 9], 1]) is BatchOutcome.APPLIED

    assert (scene.has(1), scene.has(2), scene.has(7)) == (1, 1, 0)
    assert scene.feed.counts.malformed == len(scene.errors) == 3
    assert scene.feed.knowledge is Knowledge.PARTIAL


def test_a_batch_that_would_hold_up_the_loop_is_not_read() -> None:
    """A mebibyte takes 90 ms; what such an engine has is then not known completely, and the next is read."""
    scene = Scene()
    scene.take(0, stored(1))
    assert scene.take(1, stored(*range(2, 120_000), parent=10)) is BatchOutcome.APPLIED
    assert scene.feed.knowledge is Knowledge.PARTIAL
    assert scene.feed.counts.malformed == 1
    assert scene.has(1, 2) == 1

    scene.take(2, stored(7, parent=10))
    assert scene.has(1, 7) == 2


def test_a_block_with_copies_is_there_until_the_last_one_goes() -> None:
    scene = Scene()
    scene.take(0, stored(1), stored(1), stored(1))
    scene.take(1, removed(10), removed(10))
    assert scene.has(1) == 1
    scene.take(2, removed(10))
    assert scene.has(1) == 0


def test_a_block_is_there_as_long_as_one_with_other_tokens_behind_it_is() -> None:
    """vLLM 0.33 under EAGLE or MTP: a hash covers tokens behind its block, so equal blocks have several."""

    def block(tag: int, token: int, behind: int, parent: int | None = None) -> dict[str, Any]:
        return {
            "type": "BlockStored",
            "block_hashes": [tag],
            "parent_block_hash": parent,
            "token_ids": [token],
            "block_size": 1,
            "lookahead_token_ids": [[behind]],
        }

    scene = Scene()
    scene.take(0, block(10, 1, 2), block(20, 2, 3, parent=10), block(11, 1, 5))
    scene.take(1, block(51, 5, 6, parent=11))
    assert (scene.has(1, 2), scene.has(1, 5), scene.errors) == (2, 2, [])
    scene.take(2, removed(10, 20))
    assert (scene.has(1, 2), scene.has(1, 5)) == (1, 2)
    scene.take(3, removed(11, 51))
    assert scene.has(1, 5) == 0


def test_a_tier_below_names_blocks_by_their_hashes_alone() -> None:
    scene = Scene()
    scene.take(0, stored(1, 2))
    scene.take(1, ["BlockStored", [10, 20], None, [], 0, None, "CPU"])
    scene.take(2, removed(10, 20))
    assert scene.has(1, 2) == 2
    scene.take(3, removed(20))
    assert scene.has(1, 2) == 1


def test_layers_that_remember_a_window_only_are_passed_over() -> None:
    scene = Scene()
    scene.take(0, stored(1, group=0), stored(2, group=1))
    scene.take(1, removed(10, group=1))
    assert (scene.has(1), scene.has(2)) == (1, 0)


def test_ranks_have_caches_of_their_own() -> None:
    scene = Scene()
    scene.take(0, stored(1), rank=0)
    scene.take(1, stored(1), rank=1)
    scene.take(2, ["AllBlocksCleared"], rank=0)
    assert scene.has(1) == 1
    scene.take(3, removed(10), rank=1)
    assert scene.has(1) == 0


def test_what_is_beyond_the_limit_is_not_remembered_and_said() -> None:
    scene = Scene(capacity=3)
    scene.take(0, stored(1, 2, 3, 4, 5))
    assert scene.has(1, 2, 3, 4, 5) == 3
    assert (scene.feed.orphaned(), scene.feed.knowledge) == (2, Knowledge.PARTIAL)


def test_what_is_forgotten_is_guessed_again_at_most() -> None:
    scene = Scene()
    scene.take(0, stored(1))
    scene.feed.reset()
    assert scene.has(1) == 0
    scene.index.insert("w", BlockedTokens(block_len=1).extended(array("I", [1]).tobytes()).chunks)
    scene.index.advance(3600 * 1_000_000)
    assert scene.has(1) == 1


@pytest.mark.parametrize("begun", [True, False])
def test_an_optimistic_block_that_is_not_confirmed_expires(begun: bool) -> None:
    """Two seconds after the first byte, or some minutes without one."""
    scene = Scene()
    scene.take(0)
    blocks = BlockedTokens(block_len=1).extended(array("I", [1, 2]).tobytes()).chunks
    scene.index.insert("w", blocks)
    scene.take(1, stored(1))
    if begun:
        scene.index.admitted("w", blocks)
    scene.index.advance(1_000_000)
    assert scene.has(1, 2) == 2
    scene.index.advance(2_500_000 if begun else 301_000_000)
    assert scene.has(1, 2) == 1
    assert scene.index.disproved("w") == ((1, 0) if begun else (0, 1))


def test_only_whole_blocks_of_the_engines_count() -> None:
    """A block of four tokens is four blocks of the index, of which a prompt of three matches none."""
    scene = Scene()
    scene.take(0, ["BlockStored", [70], None, [1, 2, 3, 4], 4, None])
    assert (scene.has(1, 2, 3), scene.has(1, 2, 3, 4, 5)) == (0, 4)

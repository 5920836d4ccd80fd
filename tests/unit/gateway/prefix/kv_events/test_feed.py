"""Batches in order: what follows is taken, what was seen is not; gaps and restarts are noticed."""

from array import array
from typing import Any

import msgspec
import pytest

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.gateway.prefix.kv_events.feed import BatchOutcome, Feed
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex


class Told:
    """A feed of one worker, and what it complained of."""

    def __init__(self, *, capacity: int = 1000) -> None:
        self.index = PrecisePrefixIndex()
        self.index.add_worker("w")
        self.complaints: list[str] = []
        self.feed = Feed(
            index=self.index,
            worker="w",
            block_len=1,
            capacity=capacity,
            on_change=lambda: self.index.learn("w", self.feed.knowledge),
            on_error=self.complaints.append,
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
    told = Told()
    assert told.take(0, stored(1, 2)) is BatchOutcome.APPLIED
    assert told.take(1, stored(3, parent=20)) is BatchOutcome.APPLIED
    assert told.feed.knowledge is Knowledge.COMPLETE
    assert told.has(1, 2, 3, 4) == 3

    told.take(2, removed(30), removed(20))
    assert told.has(1, 2, 3) == 1


def test_from_the_middle_something_is_known() -> None:
    told = Told()
    told.take(7, stored(1), stored(5, parent=40))
    assert told.feed.knowledge is Knowledge.PARTIAL
    assert told.has(1) == 1
    assert told.feed.orphaned() == 1

    told.take(8, ["AllBlocksCleared"])
    assert told.feed.knowledge is Knowledge.COMPLETE
    assert told.has(1) == 0


def test_what_was_seen_changes_nothing() -> None:
    told = Told()
    told.take(0, stored(1))
    told.take(1, stored(2, parent=10))
    assert told.take(0, stored(1)) is BatchOutcome.DUPLICATE
    told.take(2, removed(10))
    assert told.has(1) == 0


def test_what_is_missing_is_noticed_and_nothing_taken() -> None:
    told = Told()
    told.take(0, stored(1))
    assert told.take(2, stored(3)) is BatchOutcome.GAP
    assert told.has(3) == 0
    assert told.take(1, stored(2)) is BatchOutcome.APPLIED
    assert told.take(2, stored(3)) is BatchOutcome.APPLIED


def test_a_low_number_of_a_later_time_is_another_engine() -> None:
    told = Told()
    for number in range(5):
        told.take(number, stored(number + 1))
    assert told.take(0, stored(9), at=100.0) is BatchOutcome.RESTARTED
    assert (told.has(1), told.feed.knowledge) == (0, Knowledge.NONE)
    assert told.take(0, stored(9), at=100.0) is BatchOutcome.APPLIED
    assert (told.has(9), told.feed.knowledge) == (1, Knowledge.COMPLETE)
    assert told.feed.counts.restarts == 1


def test_the_last_batch_tells_whether_it_is_the_same_engine() -> None:
    told = Told()
    told.take(0, stored(1))
    assert told.feed.is_last(0, batch(stored(1), at=0))
    assert not told.feed.is_last(0, batch(stored(1), at=50.0))
    assert not told.feed.is_last(1, batch(stored(1), at=0))

    told.feed.mark_stale()
    told.feed.mark_stale()
    assert told.feed.knowledge is Knowledge.PARTIAL
    told.feed.mark_current()
    assert told.feed.knowledge is Knowledge.COMPLETE


def test_doubt_of_what_was_partly_known_does_not_become_certainty() -> None:
    told = Told()
    told.take(3, stored(1))
    told.feed.mark_stale()
    told.feed.mark_current()
    assert told.feed.knowledge is Knowledge.PARTIAL


def test_what_cannot_be_read_is_counted_and_the_rest_goes_on() -> None:
    told = Told()
    told.take(0, stored(1))
    assert told.feed.receive(1, b"\xc1") is BatchOutcome.APPLIED
    assert told.take(2, ["BlockStored", [70], None, [-1], 1], stored(2)) is BatchOutcome.APPLIED
    assert told.take(3, ["BlockStored", [70, 80], None, [7, 8, 9], 1]) is BatchOutcome.APPLIED

    assert (told.has(1), told.has(2), told.has(7)) == (1, 1, 0)
    assert told.feed.counts.malformed == len(told.complaints) == 3
    assert told.feed.knowledge is Knowledge.PARTIAL


def test_a_batch_that_would_hold_up_the_loop_is_not_read() -> None:
    """A mebibyte takes 90 ms; what such an engine has is then not known completely, and the next is read."""
    told = Told()
    told.take(0, stored(1))
    assert told.take(1, stored(*range(2, 120_000), parent=10)) is BatchOutcome.APPLIED
    assert told.feed.knowledge is Knowledge.PARTIAL
    assert told.feed.counts.malformed == 1
    assert told.has(1, 2) == 1

    told.take(2, stored(7, parent=10))
    assert told.has(1, 7) == 2


def test_a_block_with_copies_is_there_until_the_last_one_goes() -> None:
    told = Told()
    told.take(0, stored(1), stored(1), stored(1))
    told.take(1, removed(10), removed(10))
    assert told.has(1) == 1
    told.take(2, removed(10))
    assert told.has(1) == 0


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

    told = Told()
    told.take(0, block(10, 1, 2), block(20, 2, 3, parent=10), block(11, 1, 5))
    told.take(1, block(51, 5, 6, parent=11))
    assert (told.has(1, 2), told.has(1, 5), told.complaints) == (2, 2, [])
    told.take(2, removed(10, 20))
    assert (told.has(1, 2), told.has(1, 5)) == (1, 2)
    told.take(3, removed(11, 51))
    assert told.has(1, 5) == 0


def test_a_tier_below_names_blocks_by_their_hashes_alone() -> None:
    told = Told()
    told.take(0, stored(1, 2))
    told.take(1, ["BlockStored", [10, 20], None, [], 0, None, "CPU"])
    told.take(2, removed(10, 20))
    assert told.has(1, 2) == 2
    told.take(3, removed(20))
    assert told.has(1, 2) == 1


def test_layers_that_remember_a_window_only_are_passed_over() -> None:
    told = Told()
    told.take(0, stored(1, group=0), stored(2, group=1))
    told.take(1, removed(10, group=1))
    assert (told.has(1), told.has(2)) == (1, 0)


def test_ranks_have_caches_of_their_own() -> None:
    told = Told()
    told.take(0, stored(1), rank=0)
    told.take(1, stored(1), rank=1)
    told.take(2, ["AllBlocksCleared"], rank=0)
    assert told.has(1) == 1
    told.take(3, removed(10), rank=1)
    assert told.has(1) == 0


def test_what_is_beyond_the_limit_is_not_remembered_and_said() -> None:
    told = Told(capacity=3)
    told.take(0, stored(1, 2, 3, 4, 5))
    assert told.has(1, 2, 3, 4, 5) == 3
    assert (told.feed.orphaned(), told.feed.knowledge) == (2, Knowledge.PARTIAL)


def test_what_is_forgotten_is_guessed_again_at_most() -> None:
    told = Told()
    told.take(0, stored(1))
    told.feed.reset()
    assert told.has(1) == 0
    told.index.insert("w", BlockedTokens(block_len=1).extended(array("I", [1]).tobytes()).chunks)
    told.index.advance(3600 * 1_000_000)
    assert told.has(1) == 1


@pytest.mark.parametrize("begun", [True, False])
def test_a_guess_that_is_not_confirmed_is_denied(begun: bool) -> None:
    """Two seconds after the first byte, or some minutes where there was none."""
    told = Told()
    told.take(0)
    blocks = BlockedTokens(block_len=1).extended(array("I", [1, 2]).tobytes()).chunks
    told.index.insert("w", blocks)
    told.take(1, stored(1))
    if begun:
        told.index.admitted("w", blocks)
    told.index.advance(1_000_000)
    assert told.has(1, 2) == 2
    told.index.advance(2_500_000 if begun else 301_000_000)
    assert told.has(1, 2) == 1
    assert told.index.disproved("w") == ((1, 0) if begun else (0, 1))


def test_only_whole_blocks_of_the_engines_count() -> None:
    """Its block of four tokens is four of ours, and no prompt of three finds any of it."""
    told = Told()
    told.take(0, ["BlockStored", [70], None, [1, 2, 3, 4], 4, None])
    assert (told.has(1, 2, 3), told.has(1, 2, 3, 4, 5)) == (0, 4)

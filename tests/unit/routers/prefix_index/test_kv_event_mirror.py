"""SGLang's pages of one token: long prompts in one event, that part anywhere, and what is left of them."""

from array import array

import pytest

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.routers.prefix_index.kv_event_mirror import FineBlocks, KVEventMirror, Stored
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex

OURS = 16


class Engine:
    """Reports stored and removed prompts, in pages of `page_len` tokens."""

    def __init__(self, page_len: int, *, capacity: int = 100_000) -> None:
        self.index = PrecisePrefixIndex()
        self.index.add_worker("a")
        self.blocks = KVEventMirror(index=self.index, worker="a", block_len=OURS, capacity=capacity)
        self.page_len = page_len

    def hashes(self, tokens: list[int], *, after: int = 0) -> list[int]:
        ends = range(after + self.page_len, len(tokens) + 1, self.page_len)
        return [hash(tuple(tokens[:end])) for end in ends]

    def store(self, tokens: list[int], *, after: int = 0, extras: tuple[object, ...] = ()) -> None:
        """Report the pages of a prompt after its first `after` tokens, which are stored already."""
        hashes = self.hashes(tokens, after=after)
        parent = hash(tuple(tokens[:after])) if after else None
        stored = tokens[after : after + len(hashes) * self.page_len]
        self.blocks.stored(Stored(hashes, parent, stored, self.page_len, extras=extras))
        self.check()

    def remove(self, tokens: list[int], *, after: int = 0) -> None:
        self.blocks.removed(self.hashes(tokens, after=after))
        self.check()

    def check(self) -> None:
        self.blocks.check()
        self.index.check()

    def has(self, tokens: list[int]) -> int:
        """Return the matched tokens, in whole blocks of the index."""
        asked = BlockedTokens(block_len=OURS).extended(array("I", tokens).tobytes())
        return self.index.match(asked.chunks).of("a") * OURS


def whole(tokens: int) -> int:
    return tokens - tokens % OURS


@pytest.mark.parametrize("page_len", [1, 2, 3, 5, 8])
def test_prompts_that_part_after_any_page_are_each_known_whole(page_len: int) -> None:
    """1,000 tokens in one event, and beginnings of it that go on otherwise, one after each page."""
    engine = Engine(page_len)
    first = list(range(1000))
    engine.store(first)
    assert engine.has(first) == whole(len(first) // page_len * page_len)

    for at in range(page_len, 600, 7 * page_len):
        other = first[:at] + [5000 + at] * 40
        engine.store(other, after=at)
        assert engine.has(other) == whole(len(other) // page_len * page_len)
        assert engine.has(first) == whole(len(first) // page_len * page_len)


@pytest.mark.parametrize("page_len", [1, 4])
def test_what_is_left_of_a_prompt_is_known_and_can_go_on(page_len: int) -> None:
    engine = Engine(page_len)
    first = list(range(1000))
    engine.store(first)

    engine.remove(first, after=500)
    assert engine.has(first) == whole(500)

    other = first[:500] + [7] * 700
    engine.store(other, after=500)
    assert (engine.has(other), engine.has(first)) == (whole(1200), whole(500))

    engine.remove(other, after=500)
    engine.remove(first[:500])
    assert (engine.has(first), len(engine.blocks), engine.index.confirmed("a")) == (0, 0, 0)


@pytest.mark.parametrize("page_len", [1, 3, 8])
def test_pages_that_come_an_event_each_are_kept_as_if_they_came_in_one(page_len: int) -> None:
    """As SGLang's recorder in Python says them; each alone would take four times the memory."""
    one, each = Engine(page_len), Engine(page_len)
    first = list(range(page_len * 1000))
    one.store(first)
    for end in range(page_len, len(first) + 1, page_len):
        each.store(first[:end], after=end - page_len)

    assert each.has(first) == one.has(first) == whole(len(first))
    assert len(each.blocks._fine._runs) == len(one.blocks._fine._runs) == 4

    for engine in (one, each):
        engine.remove(
            first, after=600 * page_len
        )  # which had gone on in the third run, and the fourth
        other = first[: 600 * page_len] + [7] * 40 * page_len
        engine.store(other, after=600 * page_len)
        assert (engine.has(other), engine.has(first)) == (
            whole(640 * page_len),
            whole(600 * page_len),
        )


def test_pages_go_on_only_where_the_last_ended() -> None:
    """The same numbers after another beginning, or in pages of another length, are a run of their own."""
    engine = Engine(1)
    first, second = [1] * 20, [2] * 20
    engine.store(first)
    engine.store(second)
    engine.store([*first, 5, 5], after=20)
    engine.page_len = 2
    engine.store([*first, 5, 5, *range(10)], after=22)

    assert engine.has([*first, 5, 5, *range(10)]) == 32
    assert (engine.has(first), engine.has([*second, 5, 5, *range(10)])) == (16, 16)


def test_what_is_stored_again_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a second tier; only where unknown pages follow is the chain's end looked for, once."""
    engine = Engine(1)
    first = list(range(300))
    engine.store(first[:200])
    asked: list[object] = []
    place = FineBlocks.end_of
    monkeypatch.setattr(
        FineBlocks, "end_of", lambda blocks, one: asked.append(one) or place(blocks, one)
    )
    engine.store(first[:200])
    assert not asked
    engine.store(first)

    assert len(asked) == 1
    assert engine.has(first) == whole(300)


def test_a_prompt_that_is_stored_twice_is_gone_when_both_are_removed() -> None:
    """SGLang says the same hashes of two prompts that differ by `extra_key` alone."""
    engine = Engine(1)
    first = list(range(300))
    for _ in range(2):
        engine.store(first)

    engine.remove(first)
    assert engine.has(first) == whole(300)
    engine.remove(first)
    assert (engine.has(first), len(engine.blocks)) == (0, 0)


def test_a_prompt_of_which_a_part_is_known_is_known_whole() -> None:
    engine = Engine(1)
    first = list(range(300))
    engine.store(first[:100])
    engine.store(first)  # the first 100 once more, the others for the first time

    assert engine.has(first) == whole(300)
    engine.remove(first[:100])
    assert engine.has(first) == whole(300)
    engine.remove(first)
    assert (engine.has(first), len(engine.blocks)) == (0, 0)


def test_what_splits_the_cache_beside_tokens_splits_it_here() -> None:
    """An image that stands for tokens: the same numbers are other blocks from there on."""
    engine = Engine(1)
    first = list(range(64))
    engine.store(first, extras=(None,) * 32 + ("image",) + (None,) * 31)

    assert engine.has(first) == 32


def test_beyond_its_bound_the_beginning_of_a_prompt_is_kept() -> None:
    engine = Engine(1, capacity=400)
    first = list(range(1000))
    engine.store(first)

    assert (engine.has(first), len(engine.blocks), engine.blocks.beyond) == (400, 400, 600)
    engine.remove(first)
    assert (engine.has(first), len(engine.blocks)) == (0, 0)


def test_all_of_it_is_cleared_at_once() -> None:
    engine = Engine(1)
    engine.store(list(range(1000)))
    engine.blocks.clear()
    engine.check()

    assert (engine.has(list(range(1000))), len(engine.blocks)) == (0, 0)

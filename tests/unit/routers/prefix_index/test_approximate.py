"""The gateway's prefix index against a naive one that remembers whole texts."""

from collections.abc import Callable
from zlib import adler32, crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText, chunks_len

# Texts that share prefixes: a few letters, repeated often enough to fill chunks.
TEXTS = st.lists(st.sampled_from([b"a" * 200, b"b" * 200, b"c" * 700]), max_size=30).map(b"".join)


def chunks(text: bytes) -> tuple[int, ...]:
    return ChunkedText().extended(text).chunks


def long_checksum(piece: bytes | memoryview, before: int) -> int:
    """64 bits, with the first one set."""
    low = before & 0xFFFFFFFF
    return 1 << 63 | adler32(piece, low) << 32 & (1 << 63) - 1 | crc32(piece, before >> 32)


@settings(deadline=None)
@given(head=TEXTS, tail=TEXTS, seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("checksum", [crc32, long_checksum])
def test_a_text_hashes_the_same_in_one_piece_or_two(
    head: bytes, tail: bytes, seed: int, checksum: Callable[[bytes | memoryview, int], int]
) -> None:
    """The next turn of a conversation is hashed from where the last one ended."""
    whole = ChunkedText().extended(head + tail, checksum, seed=seed)
    begun = ChunkedText().extended(head, checksum, seed=seed)

    assert whole == begun.extended(tail, checksum, seed=seed)


def test_who_does_not_know_the_seed_does_not_know_the_sums() -> None:
    text = b"a" * 5000
    of_seeds = [ChunkedText().extended(text, seed=seed).chunks for seed in range(100)]

    assert len({chunk for chunks in of_seeds for chunk in chunks}) == 100 * len(of_seeds[0])


@settings(deadline=None)
@given(text=TEXTS)
def test_chunks_cover_the_text_but_for_a_last_part(text: bytes) -> None:
    whole = ChunkedText().extended(text)

    assert text == text[: chunks_len(len(whole.chunks))] + whole.tail
    assert chunks_len(len(whole.chunks) + 1) > len(text)


def test_the_end_of_an_endless_text_does_not_count() -> None:
    endless = ChunkedText().extended(b"x" * (17 << 20))

    assert endless.extended(b"y" * (1 << 20)).chunks == endless.chunks
    assert chunks_len(len(endless.chunks)) < 17 << 20


@settings(deadline=None)
@given(seen=st.lists(st.tuples(st.sampled_from("vwx"), TEXTS), max_size=8), asked=TEXTS)
def test_the_match_is_the_longest_common_run_of_chunks(
    seen: list[tuple[str, bytes]], asked: bytes
) -> None:
    """With room for everything, the index answers what comparing all texts would."""
    index = ApproximatePrefixIndex()
    for worker in "vwx":
        index.add_worker(worker)
    for worker, text in seen:
        index.insert(worker, chunks(text))
    index.check()

    wanted = chunks(asked)
    expected = {
        worker: max(
            (common(wanted, chunks(text)) for other, text in seen if other == worker), default=0
        )
        for worker in "vwx"
    }
    found = index.match(wanted)
    assert {worker: found.of(worker) for worker in "vwx"} == expected


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("vw"), st.booleans(), TEXTS), max_size=20),
    capacity=st.integers(1, 12),
)
def test_the_index_stays_within_its_bounds(
    steps: list[tuple[str, bool, bytes]], capacity: int
) -> None:
    """Workers come and go; each keeps at most its capacity, and a lost one nothing."""
    index = ApproximatePrefixIndex(capacity=capacity)
    up = set()
    for worker, leaves, text in steps:
        if leaves and worker in up:
            index.drop_worker(worker)
            up.remove(worker)
        elif worker not in up:
            index.add_worker(worker)
            up.add(worker)
        if worker in up:
            index.insert(worker, chunks(text))
        index.check()

    for worker in up:
        index.drop_worker(worker)
    index.check()
    assert not index.match(chunks(b"a" * 1000)).by_length


def test_the_tail_of_a_text_is_forgotten_before_its_head() -> None:
    """A head without its tail still helps; a tail without its head matches nothing."""
    index = ApproximatePrefixIndex(capacity=6)
    index.add_worker("w")
    old, new = chunks(b"a" * 1024), chunks(b"b" * 1024)
    index.insert("w", old)
    index.insert("w", new)

    assert index.match(old).of("w") == 2
    assert index.match(new).of("w") == 4


def test_a_gap_ends_a_match() -> None:
    """A chunk may outlive those before it; without them an engine cannot use it."""
    index = ApproximatePrefixIndex()
    for worker in "vw":
        index.add_worker(worker)
    text = chunks(b"a" * 1024)
    index.insert("v", text)
    index.insert("w", text[:1])
    index.insert("w", text[2:])

    assert [(4, {"v"}), (1, {"v", "w"})] == index.match(text).by_length

"""Texts in pieces: the same tokens as the whole, for less; what is kept is bounded."""

import random
from array import array

import pytest

from fairhit.gateway.prefix.segments import SAMPLE, PieceCache, cut, is_cuttable


def test_pieces_of_a_beginning_are_the_pieces_of_the_whole_but_the_last() -> None:
    rng = random.Random(1)
    text = " ".join(rng.choice(["ab", "cde", "f1", "\n", "ü"]) for _ in range(4000))
    whole = cut(text, piece=100)
    assert "".join(whole) == text
    assert all(100 <= len(piece) < 200 for piece in whole[:-1])
    for length in (0, 99, 100, 1000, 5000):
        pieces = cut(text[:length], piece=100)
        assert pieces[:-1] == whole[: len(pieces) - 1]


def test_a_text_without_a_place_to_cut_stays_whole() -> None:
    assert cut("x" * 10_000, piece=100) == ["x" * 10_000]


def letters(text: str) -> bytes:
    return array("I", map(ord, text)).tobytes()


def test_a_tokenizer_that_treats_a_beginning_specially_is_found_out() -> None:
    assert is_cuttable(letters)
    assert not is_cuttable(lambda text: letters("_" + text))


def test_real_byte_pairs_are_cut_between_words() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, show_progress=False)
    made.train_from_iterator([SAMPLE], trainer)

    def encode(text: str) -> bytes:
        return array("I", made.encode(text).ids).tobytes()

    assert is_cuttable(encode)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not is_cuttable(encode)


def test_what_was_encoded_is_not_encoded_again() -> None:
    encoded: list[str] = []

    def encode(text: str) -> bytes:
        encoded.append(text)
        return letters(text)

    cache = PieceCache(capacity=10_000)
    assert cache.encode(["a", "b"], encode) == letters("ab")
    assert cache.encode(["a", "b", "c"], encode) == letters("abc")
    assert encoded == ["a", "b", "c"]
    assert (cache.hits, cache.misses) == (2, 3)


def test_what_is_kept_is_bounded_and_the_oldest_goes() -> None:
    cache = PieceCache(capacity=1000)
    for number in range(100):
        cache.encode([str(number)], letters)
        cache.encode(["always"], letters)
        cache.check()
        assert cache.size() <= 1000
    before = cache.misses
    cache.encode(["always", "99"], letters)
    assert cache.misses == before
    cache.encode(["x" * 1000], letters)
    assert cache.size() <= 1000

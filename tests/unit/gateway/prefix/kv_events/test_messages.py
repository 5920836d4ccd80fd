"""KV events of every version read into one form; the bytes were made by the engines' own encoders."""

from typing import Any

import msgspec
import pytest

from fairhit.gateway.prefix.kv_events.messages import (
    BlocksRemoved,
    BlocksStored,
    Cleared,
    read_batch,
)

RECORDED = {
    "vllm 0.15": (
        "93cb3ff80000000000009398ab426c6f636b53746f726564920b0cc0940102030402c0a3475055c093ac426c6f63"
        "6b52656d6f766564910ca347505591b0416c6c426c6f636b73436c656172656401"
    ),
    "vllm 0.20": (
        "93cb3ff8000000000000939aab426c6f636b53746f726564920b0cc0940102030402c0a3475055c09291a473616c"
        "74c00094ac426c6f636b52656d6f766564910ca34750550091b0416c6c426c6f636b73436c656172656400"
    ),
    "vllm 0.26": (
        "93cb3ff8000000000000938ba474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920b0cb1"
        "706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a7"
        "6c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65a26164aa65787472615f6b6579739292a2"
        "6164a473616c7491a26164a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c"
        "5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573910ca66d"
        "656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400"
    ),
    "vllm 0.32": (
        "93cb3ff8000000000000938ca474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920b0cb1"
        "706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a7"
        "6c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b6579739291a47361"
        "6c74c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e7469"
        "6f6eaa73657373696f6e5f6964a17384a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865"
        "73910ca66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172"
        "656400"
    ),
}
SPLIT_BY = {"vllm 0.15": ("", ""), "vllm 0.26": ("ad", "salt")}  # the others: a salt


@pytest.mark.parametrize("version", RECORDED)
def test_what_each_vllm_writes_is_the_same_to_us(version: str) -> None:
    batch = read_batch(bytes.fromhex(RECORDED[version]))
    stored, removed, cleared = batch.events

    assert (batch.time_s, batch.rank, batch.unreadable) == (1.5, int(version == "vllm 0.15"), "")
    assert isinstance(stored, BlocksStored)
    assert stored.blocks.hashes == [11, 12]
    assert stored.blocks.parent is None
    assert (stored.blocks.tokens, stored.blocks.block_len) == ([1, 2, 3, 4], 2)
    adapter, salt = SPLIT_BY.get(version, ("", "salt"))
    assert (stored.blocks.adapter, stored.blocks.salt) == (adapter, salt)
    assert not any(stored.blocks.extras)
    assert stored.full is (True if version in {"vllm 0.26", "vllm 0.32"} else None)
    assert removed == BlocksRemoved([12], 0)
    assert cleared == Cleared()


def packed(*events: Any, rank: Any = 0) -> bytes:
    return msgspec.msgpack.encode([2.0, list(events), rank])


def test_the_first_fields_of_vllm_011_and_sglang_are_enough() -> None:
    """SGLang wrote five fields at first, vLLM 0.11 six; the batch had no rank."""
    five = ["BlockStored", [1], None, [7], 1, None]
    batch = read_batch(msgspec.msgpack.encode([2.0, [five, [*five, "GPU"], ["BlockRemoved", [1]]]]))

    assert [type(event) for event in batch.events] == [BlocksStored, BlocksStored, BlocksRemoved]
    assert batch.rank == 0


def test_a_batch_that_is_a_map_and_hashes_that_are_bytes_are_read() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [b"h" * 32], "medium": "GPU"}
    written = {"ts": 3, "events": [removed], "data_parallel_rank": 2}
    batch = read_batch(msgspec.msgpack.encode(written))

    assert (batch.events, batch.rank, batch.time_s) == ((BlocksRemoved([b"h" * 32], 0),), 2, 3.0)


def test_sglangs_own_salt_and_key_split_the_cache() -> None:
    stored = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [7],
        "block_size": 1, "lora_id": None, "cache_salt": "s", "extra_key": "k", "later": 1,
    }  # fmt: skip
    (event,) = read_batch(packed(stored)).events
    assert isinstance(event, BlocksStored)
    assert event.blocks.salt == "s\0k"


def test_images_stay_with_their_blocks_and_a_number_is_no_name_of_an_adapter() -> None:
    pairs = [[["image", 3], "salt"], None]
    stored = ["BlockStored", [1, 2], None, [7, 8], 1, 4, "GPU", None, pairs, 1, "sliding_window"]
    (event,) = read_batch(packed(stored)).events

    assert isinstance(event, BlocksStored)
    assert (event.blocks.adapter, event.blocks.salt) == ("\x004", "")
    assert list(event.blocks.extras) == [[["image", 3], "salt"], None]
    assert (event.group, event.full) == (1, False)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"x", msgspec.msgpack.encode(1), msgspec.msgpack.encode([1.0]),
     msgspec.msgpack.encode(["a", []]), msgspec.msgpack.encode({"ts": 1.0}), b"\x91" * 5000],
)  # fmt: skip
def test_what_is_no_batch_is_one_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read_batch(payload)


@pytest.mark.parametrize(
    "event",
    [1, [], ["Other"], ["BlockRemoved", "x"], ["BlockStored", [1], "parent", [7], 1],
     ["BlockStored", [1], None, None, 1], ["BlockStored", [1], None, [7], "1"],
     {"type": "BlockStored", "block_hashes": [None]}, {"block_hashes": []}],
)  # fmt: skip
def test_an_event_that_cannot_be_read_is_named_and_the_others_are_taken(event: Any) -> None:
    batch = read_batch(packed(event, ["AllBlocksCleared"]))
    assert batch.events == (Cleared(),)
    assert batch.unreadable
    assert "\n" not in batch.unreadable

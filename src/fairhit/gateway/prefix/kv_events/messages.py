"""Parses KV events of all versions of vLLM and SGLang into one form.

A message is (topic, sequence number, batch). A batch is MessagePack: time, events and, in newer versions,
the data-parallel rank, as an array or, in some builds, as a map. An event is an array to which versions
appended fields (vLLM 0.11 to 0.20, early SGLang) or a map tagged `type` (vLLM from 0.26, SGLang). Unknown
fields are ignored; a missing field has the meaning of versions before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from fairhit.routers.prefix_index.kv_event_mirror import EngineHash, Stored

_STORED = (
    "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
    "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
_REMOVED = ("type", "block_hashes", "medium", "group_idx")
# Kinds with attention to all earlier tokens, whose cache depends on the prompt's tokens alone. Sliding
# windows and states of other layers cover fewer tokens and are not matched.
_FULL_ATTENTION = frozenset(("full_attention", "sink_full_attention", "mla_attention"))
_HASHES = frozenset((int, bytes))
_decode = msgspec.msgpack.Decoder().decode


class BlocksStored(NamedTuple):
    """Blocks that were stored for a group of layers; `full` (attention) is None if not reported."""

    blocks: Stored
    group: int
    full: bool | None


class BlocksRemoved(NamedTuple):
    """Blocks that were evicted."""

    hashes: Sequence[EngineHash]
    group: int


class Cleared(NamedTuple):
    """The cache was emptied."""


Event: TypeAlias = BlocksStored | BlocksRemoved | Cleared


class Batch(NamedTuple):
    """Events of a step of the engine; `time_s` is of its clock."""

    time_s: float
    events: tuple[Event, ...]
    rank: int
    unreadable: str  # problem of the first event that could not be parsed; "" if there is none


def read_batch(payload: bytes) -> Batch:
    """Parse the payload of a message. O(tokens). Raises ValueError if it is not a batch."""
    try:
        found = _decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not MessagePack: {error}") from None
    if isinstance(found, Mapping):
        found = [found.get("ts"), found.get("events"), found.get("data_parallel_rank")]
    if not isinstance(found, list) or len(found) < 2 or not isinstance(found[1], list):
        raise ValueError("not a batch of events")
    time_s, rank = found[0], found[2] if len(found) > 2 else None
    if not isinstance(time_s, int | float):
        raise ValueError("a batch without a time")
    events, unreadable = [], ""
    for one in found[1]:
        try:
            events.append(_read_event(one))
        except ValueError as error:
            unreadable = unreadable or str(error)
    return Batch(float(time_s), tuple(events), rank if isinstance(rank, int) else 0, unreadable)


def _read_event(event: Any) -> Event:
    if isinstance(event, Mapping):
        fields: Mapping[str, Any] = event
    elif isinstance(event, list) and event:
        names = _STORED if event[0] == "BlockStored" else _REMOVED
        fields = dict(zip(names, event, strict=False))
    else:
        raise ValueError("an event that is neither an array nor a map")
    kind = fields.get("type")
    if kind == "AllBlocksCleared":
        return Cleared()
    if kind == "BlockRemoved":
        return BlocksRemoved(_hashes(fields), _group(fields))
    if kind == "BlockStored":
        return _stored(fields)
    raise ValueError(f"an event of a kind not known: {str(kind)[:40]!r}")


def _stored(fields: Mapping[str, Any]) -> BlocksStored:
    parent, tokens = fields.get("parent_block_hash"), fields.get("token_ids")
    if not (parent is None or isinstance(parent, int | bytes)):
        raise ValueError("parent_block_hash is no hash")
    block_len = fields.get("block_size")
    if not isinstance(tokens, list) or not isinstance(block_len, int):
        raise ValueError("token_ids is no list, or block_size no number")
    adapter, salt, extras = _split_by(fields)
    kind = fields.get("kv_cache_spec_kind")
    blocks = Stored(
        hashes=_hashes(fields),
        parent=parent,
        tokens=tokens,
        block_len=block_len,
        adapter=adapter,
        salt=salt,
        extras=extras,
    )
    return BlocksStored(blocks, _group(fields), None if kind is None else kind in _FULL_ATTENTION)


def _split_by(fields: Mapping[str, Any]) -> tuple[str, str, Sequence[object]]:
    """Adapter, cache salt, and per block other keys that separate cache entries.

    vLLM lists per block: the adapter's name, images, in the first block the salt, embeddings. A single
    string in the first block is the salt. Older versions report only the adapter's number, which requests
    do not contain: such blocks match no request.
    """
    name, number = fields.get("lora_name"), fields.get("lora_id")
    adapter = str(name) if name else "" if number is None else f"\0{number}"
    salt = fields.get("cache_salt") or ""
    if fields.get("extra_key"):
        salt = f"{salt}\0{fields['extra_key']}"
    entries = fields.get("extra_keys")
    if not isinstance(entries, list):
        return adapter, str(salt), ()
    extras: list[object] = []
    for entry in entries:
        rest = list(entry) if isinstance(entry, list) else []
        if name and rest[:1] == [name]:
            del rest[0]
        extras.append(rest or None)
    first = extras[0] if extras and fields.get("parent_block_hash") is None else None
    if isinstance(first, list) and len(first) == 1 and isinstance(first[0], str):
        salt, extras[0] = first[0], None
    return adapter, str(salt), extras


def _hashes(fields: Mapping[str, Any]) -> list[EngineHash]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not _HASHES.issuperset(map(type, hashes)):
        raise ValueError("block_hashes is no list of hashes")
    return hashes


def _group(fields: Mapping[str, Any]) -> int:
    group = fields.get("group_idx")
    return group if isinstance(group, int) else 0

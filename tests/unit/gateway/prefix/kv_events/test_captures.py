"""Recorded events of real SGLang servers: after them the index has what the engine then had.

The files were written by `python -m tests.sglang.capture`: prompts that were asked, with the tokens that the
engine reported as cached, and between them its messages. 256 tokens of KV, so that much is evicted.
"""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairhit.core.cache.token_blocks import BlockedTokens, chain_start
from fairhit.gateway.prefix.kv_events.feed import BatchOutcome, Feed
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.jsonl"))


def page_len(capture: Path) -> int:
    return int(capture.stem.rpartition("page")[2])


def lines(capture: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, capture.read_text().splitlines())


class Heard:
    """An index that receives the events of a capture."""

    def __init__(self, block_len: int) -> None:
        self.complaints: list[str] = []
        self.index = PrecisePrefixIndex()
        self.index.add_worker("engine")
        self.block_len = block_len
        self.feed = Feed(
            index=self.index,
            worker="engine",
            block_len=block_len,
            capacity=10_000,
            on_change=lambda: None,
            on_error=self.complaints.append,
        )

    def cached(self, line: dict[str, Any]) -> int:
        """Tokens of a prompt that the engine has, as far as is known."""
        tokens = [first + more for first, count in line["tokens"] for more in range(count)]
        start = BlockedTokens(
            crc=chain_start(salt=line.get("cache_salt", "")), block_len=self.block_len
        )
        prompt = start.extended(array("I", tokens).tobytes())
        return self.index.match(prompt.reusable).of("engine") * self.block_len


def test_each_format_and_size_of_page_was_captured() -> None:
    assert [capture.stem for capture in CAPTURES] == [
        f"sglang-0.5.23-{form}-page{page}" for form in ("default", "dynamo") for page in (1, 16)
    ]


@pytest.mark.parametrize("block_len", [1, 16, 32])
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_what_is_known_at_each_prompt_is_what_the_engine_found(
    capture: Path, block_len: int
) -> None:
    """In whole blocks of both: shared beginnings, salts, evictions, an emptied cache."""
    replayed = Heard(block_len)
    known, reported = [], []
    for line in lines(capture):
        if "batch" in line:
            payload = bytes.fromhex(line["batch"])
            assert replayed.feed.receive(line["number"], payload) is BatchOutcome.APPLIED
            replayed.index.check()
        elif "tokens" in line:
            known.append(replayed.cached(line))
            reported.append(line["cached"])

    grain = max(block_len, page_len(capture))
    assert known == [cached - cached % grain for cached in reported]
    assert max(reported) >= 64 and reported.count(0) > 3  # there was something to know
    assert replayed.complaints == []
    assert replayed.feed.orphaned() == 0


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_an_emptied_cache_is_known_completely(capture: Path) -> None:
    """The capture begins at a later batch than the first, so that until then there may be more."""
    replayed = Heard(16)
    levels = []
    for line in lines(capture):
        if "batch" in line:
            replayed.feed.receive(line["number"], bytes.fromhex(line["batch"]))
            levels.append(replayed.feed.knowledge)
        elif "flush" in line:
            flushed = len(levels)

    assert set(levels[:flushed]) == {Knowledge.PARTIAL}
    assert set(levels[flushed:]) == {Knowledge.COMPLETE}

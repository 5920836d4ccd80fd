"""Subscriptions over real sockets, to a publisher that is no engine: gaps, replays, restarts, lost lines."""

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import uvloop
from tests.unit.gateway.prefix.kv_events.publisher import Publisher

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.gateway.prefix.kv_events.cache_monitor import CacheCounts, CacheMonitor
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex


@dataclass
class Scene:
    """An index that receives the events of a publisher."""

    publisher: Publisher
    index: PrecisePrefixIndex
    watch: CacheMonitor

    @property
    def counts(self) -> CacheCounts:
        return self.watch.counts()["w"]

    def has(self, *tokens: int) -> int:
        self.index.check()
        prompt = BlockedTokens(block_len=1).extended(array("I", tokens).tobytes())
        return self.index.match(prompt.chunks).of("w")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    async def knows(self, knowledge: Knowledge) -> None:
        await self.until(lambda: self.index.knowledge("w") is knowledge)


def play(
    story: Callable[[Scene], Coroutine[Any, Any, None]],
    *,
    said: tuple[Any, ...] = (),
    replays: bool = True,
    **options: Any,
) -> None:
    """`said` has been published before anybody listened."""

    async def run() -> None:
        publisher = Publisher(**options).open()
        for event in said:
            publisher.say(event)
        events, replay = (f"tcp://127.0.0.1:{port}" for port in publisher.ports)
        index = PrecisePrefixIndex()
        pairs = ((events, replay if replays else None),)
        watch = CacheMonitor(index=index, endpoints={"w": pairs}.get, block_len=1, capacity=1000)
        index.add_worker("w")
        try:
            await story(Scene(publisher, index, watch))
        finally:
            watch.close()
            publisher.close()
            publisher.context.term()

    uvloop.run(run())


def stored(*tokens: int) -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": [10 * token for token in tokens],
        "parent_block_hash": None, "token_ids": list(tokens), "block_size": 1, "lora_id": None,
    }  # fmt: skip


@pytest.mark.parametrize("topic", [True, False])
def test_what_was_said_before_is_replayed_and_what_follows_is_heard(topic: bool) -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        assert (scene.has(1, 2), scene.has(3)) == (2, 1)
        scene.publisher.say(stored(4))
        await scene.until(lambda: scene.has(4) == 1)
        assert scene.counts.total("gaps") == 0

    play(story, said=(stored(1, 2), stored(3)), topic_in_replay=topic)


def test_a_publisher_that_has_said_nothing_has_an_empty_cache() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        assert scene.publisher.asked == [0]
        scene.publisher.say(stored(1))
        await scene.until(lambda: scene.has(1) == 1)

    play(story)


def test_one_that_no_longer_keeps_its_beginning_is_known_in_part() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.PARTIAL)
        assert (scene.has(1), scene.has(3)) == (0, 1)

    play(story, said=(stored(1), stored(2), stored(3)), keeps=1)


def test_a_gap_is_filled_by_a_replay() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        scene.publisher.say(stored(2), lost=True)
        scene.publisher.say(stored(3), lost=True)
        scene.publisher.say(stored(4))
        await scene.until(lambda: scene.has(4) == 1)
        assert (scene.has(1), scene.has(2), scene.has(3)) == (1, 1, 1)
        assert scene.publisher.asked == [0, 1]
        assert (scene.counts.total("gaps"), scene.counts.total("resets")) == (1, 0)
        assert scene.index.knowledge("w") is Knowledge.COMPLETE

    play(story, said=(stored(1),))


@pytest.mark.parametrize("options", [{"replays": False}, {"keeps": 1}])
def test_a_gap_that_cannot_be_filled_ends_what_was_known(options: dict[str, Any]) -> None:
    async def story(scene: Scene) -> None:
        scene.publisher.say(stored(1))
        async with asyncio.timeout(30):
            while not scene.has(1):  # until it is subscribed; what comes twice counts once
                await asyncio.sleep(0.01)
                scene.publisher.send(0)
        scene.publisher.say(stored(2), lost=True)
        scene.publisher.say(stored(3))
        await scene.until(lambda: scene.has(3) == 1)
        assert (scene.has(1), scene.has(2)) == (0, 0)
        assert scene.index.knowledge("w") is Knowledge.PARTIAL
        assert scene.counts.total("resets") == 1

    play(story, **options)


def test_batches_that_come_twice_count_once() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        scene.publisher.say(stored(1))
        scene.publisher.send(0)
        scene.publisher.say({"type": "BlockRemoved", "block_hashes": [10]})
        scene.publisher.send(0)
        scene.publisher.say(stored(2))
        await scene.until(lambda: scene.has(2) == 1)
        assert scene.has(1) == 0

    play(story)


def test_a_restart_is_noticed_by_the_lost_line() -> None:
    """The new engine has said more than the old one: its numbers alone would tell nothing."""

    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        assert scene.has(1) == 1
        scene.publisher.restart()
        scene.publisher.say(stored(5))
        scene.publisher.say(stored(6))
        await scene.until(lambda: scene.has(6) == 1)
        assert (scene.has(1), scene.has(5)) == (0, 1)
        assert scene.index.knowledge("w") is Knowledge.COMPLETE

    play(story, said=(stored(1),))


def test_a_restart_is_noticed_by_its_numbers_where_the_line_stays() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        scene.publisher.batches.clear()
        scene.publisher.born = 1000.0
        scene.publisher.say(stored(5))
        await scene.until(lambda: scene.has(5) == 1)
        assert (scene.has(1), scene.counts.total("restarts")) == (0, 1)

    play(story, said=(stored(1), stored(2)))


def test_the_same_engine_after_a_lost_line_is_believed_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        publisher = scene.publisher
        publisher.close()
        publisher.batches.append(msgspec.msgpack.encode([9.0, [stored(7)], 0]))
        await scene.knows(Knowledge.PARTIAL)
        assert scene.has(1) == 1
        publisher.open()
        await scene.knows(Knowledge.COMPLETE)
        assert (scene.has(1), scene.has(7)) == (1, 1)
        assert scene.counts.total("resets") == 0

    play(story, said=(stored(1),))


def test_a_replay_that_is_not_answered_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairhit.gateway.prefix.kv_events.subscription._REPLAY_TIMEOUT_S", 0.2)

    async def story(scene: Scene) -> None:
        await scene.until(lambda: scene.publisher.asked == [0])
        scene.publisher.say(stored(2))
        await scene.until(lambda: scene.has(2) == 1)
        assert scene.index.knowledge("w") is Knowledge.PARTIAL

    play(story, said=(stored(1),), answers=False)


def test_nonsense_is_counted_and_the_rest_is_heard() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        pub = scene.publisher.pub
        pub.send_multipart([b"kv"])
        pub.send_multipart([b"kv", b"short", b""])
        pub.send_multipart([b"kv", (0).to_bytes(8, "big"), b"\xc1"])
        scene.publisher.batches.append(b"\xc1")
        scene.publisher.say(stored(2))
        await scene.until(lambda: scene.has(2) == 1)
        assert scene.counts.total("malformed") == 3

    play(story)


def test_a_worker_that_is_gone_is_heard_no_more() -> None:
    async def story(scene: Scene) -> None:
        await scene.knows(Knowledge.COMPLETE)
        scene.index.drop_worker("w")
        assert scene.watch.counts() == {}
        scene.publisher.say(stored(2))
        await asyncio.sleep(0.05)
        scene.index.add_worker("w")
        await scene.knows(Knowledge.COMPLETE)
        assert (scene.has(1), scene.has(2)) == (1, 1)

    play(story, said=(stored(1),))


def test_an_endpoint_that_is_none_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        index = PrecisePrefixIndex()
        watch = CacheMonitor(
            index=index,
            endpoints={"w": (("nonsense", None),)}.get,
            block_len=1,
            capacity=10,
        )
        index.add_worker("w")
        assert index.knowledge("w") is Knowledge.NONE
        watch.close()

    uvloop.run(run())
    assert len(caplog.records) == 1
    assert "nonsense" in caplog.text


def test_optimistic_blocks_are_expired_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairhit.gateway.prefix.kv_events.cache_monitor._TICK_S", 0.01)

    async def run() -> None:
        index, calls, again = PrecisePrefixIndex(), 0, asyncio.Event()

        def fails(now_us: int) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                again.set()
            raise ArithmeticError("here")

        index.advance = fails  # type: ignore[method-assign,assignment]
        watch = CacheMonitor(index=index, endpoints={}.get, block_len=1, capacity=1000)
        watch._tick()
        async with asyncio.timeout(30):
            await again.wait()
        watch.close()

    uvloop.run(run())

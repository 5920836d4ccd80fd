"""Callers that leave, everything failing at once, and shutting down."""

import asyncio
import random

import pytest

from fairhit.routers.d2lpm import D2LPM
from tests.e2e.gateway.scripts import (
    Received,
    Script,
    an_empty_stream,
    break_off,
    broken,
    chat,
    die_in_mid_stream,
    endless,
    good,
    half_a_body,
    half_a_head,
    hang,
    hang_after_head,
    reset,
)
from tests.e2e.gateway.world import (
    CHAT,
    World,
    eventually,
    play,
)


@pytest.mark.parametrize("script", [hang, hang_after_head, endless])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("politely", [True, False])
def test_an_engine_stops_as_soon_as_its_caller_leaves(
    script: Script, stream: bool, politely: bool
) -> None:
    """It waits for none of the gateway's looks at the clock: there are no more of them. How soon, without
    a machine's pace: `test_the_engine_is_notified_in_the_very_call_that_says_its_caller_left`.
    """

    async def story(world: World) -> None:
        assert world.gateway._ticker is not None
        world.gateway._ticker.cancel()
        caller = await world.connect()
        caller.send(CHAT, chat(stream=stream))
        await eventually(lambda: len(world.received()) == 1)
        await asyncio.sleep(0.05)
        if politely:
            caller.writer.close()
        else:
            caller.reset()

        await eventually(world.engines[0].left.is_set)
        if script is hang:
            # The prompt, and where no output would be seen, what 50 ms are enough for.
            assert world.spent() == 2 if stream else world.spent() >= 2 + 2 * 5

    play(story, script)


def test_nothing_is_lost_when_everything_fails_at_once() -> None:
    """
    Three engines that break in every way, 300 callers of whom every third leaves early: each that
    stays gets an answer, and afterwards no engine is thought to be busy.
    """
    rng = random.Random(7)
    faults = [
        break_off,
        reset,
        half_a_head,
        half_a_body,
        broken,
        die_in_mid_stream,
        an_empty_stream,
    ]

    async def unreliable(received: Received) -> None:
        await asyncio.sleep(rng.random() * 0.02)
        await (rng.choice(faults) if rng.random() < 0.3 else good)(received)

    async def one(world: World, number: int, client: str) -> int:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=number % 2 == 0, user=client))
        if number % 3 == 0:
            await asyncio.sleep(rng.random() * 0.05)
            caller.reset()
            return 0
        reply = await caller.reply()
        caller.writer.close()
        return reply.status

    async def story(world: World) -> None:
        statuses = await asyncio.gather(
            *(one(world, number, rng.choice("abc")) for number in range(300))
        )
        stayed = [status for number, status in enumerate(statuses) if number % 3]
        assert set(stayed) <= {200, 500, 502, 503}
        assert stayed.count(200) > len(stayed) * 0.8
        await eventually(lambda: not world.gateway.exchanges)
        router = world.gateway.dispatcher.router
        assert isinstance(router, D2LPM)
        for name, worker in world.gateway.dispatcher.engines.items():
            assert not worker.tickets
            assert not worker.up or router.load.tokens(name) == 0

    play(story, *[unreliable] * 3, identify_by_user=True)


def test_shutting_down_finishes_what_is_under_way() -> None:
    release = asyncio.Event()

    async def finish_later(received: Received) -> None:
        await release.wait()
        await good(received)

    async def story(world: World) -> None:
        caller = await world.connect()
        idle = await world.connect()
        caller.send(CHAT, chat(stream=True))
        await eventually(lambda: len(world.received()) == 1)
        stopping = asyncio.ensure_future(world.gateway.stop())
        assert await idle.reader.read() == b""
        release.set()

        assert (await caller.reply()).body.endswith(b"[DONE]\n\n")
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    play(story, finish_later, shutdown_timeout_secs=10)


def test_shutting_down_answers_what_is_half_here() -> None:
    """In its head, in its body: what comes whole is served, and the connection then ends."""

    async def story(world: World) -> None:
        body = chat()
        head = b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (
            CHAT.encode(),
            len(body),
        )
        whole = head + body
        callers = {cut: await world.connect() for cut in (9, len(head), len(whole) - 1)}
        never = await world.connect()
        for cut, caller in callers.items():
            caller.writer.write(whole[:cut])
        never.writer.write(whole[:-1])
        here = world.gateway.connections
        await eventually(lambda: sum(one._reader.receiving for one in here) == 4)
        stopping = asyncio.ensure_future(world.gateway.stop())
        await eventually(lambda: all(one._reader._is_last for one in here))
        for cut, caller in callers.items():
            caller.writer.write(whole[cut:] + whole)
        for caller in callers.values():
            reply = await caller.reply()
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert await caller.reader.read() == b""
        assert (await never.reply()).status == 503
        await stopping
        assert len(world.received()) == len(callers)

    play(story, good, shutdown_timeout_secs=2)

"""Limits on an engine's silence, and on retries."""

import asyncio
import json
from collections.abc import Callable

from fairhit.dispatch import Ticket
from tests.e2e.gateway.scripts import (
    Received,
    begin_stream,
    break_off,
    broken,
    chat,
    chunk,
    events,
    good,
    hang,
    hang_after_head,
    overloaded,
)
from tests.e2e.gateway.world import NO_KEPT_CONNECTION, World, eventually, play

# Between two pieces; all of them take longer than the limits on silence, and none nearly so long.
SLOW_S, SILENT_S = 0.35, 1.5


async def silent_in_mid_stream(received: Received) -> None:
    begin_stream(received)
    for event in events(usage=False)[:3]:
        chunk(received, event)
    await asyncio.sleep(30)


async def slow_but_alive(received: Received) -> None:
    begin_stream(received)
    for event in events(usage=True):
        chunk(received, event)
        await asyncio.sleep(SLOW_S)
    chunk(received, b"")


def faults(world: World) -> list[dict[str, int]]:
    watches = world.gateway.pool.watches()
    return [
        {fault.value: n for fault, n in watch.faults.items()} for _, watch, _ in watches
    ]  # fmt: skip


def test_a_stream_that_does_not_begin_in_time_begins_elsewhere() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))
        assert (reply.status, reply.body[-8:]) == (200, b"[DONE]\n\n")
        assert faults(world) == [{"timeout": 1}, {}]
        await eventually(world.engines[0].left.is_set)

    play(
        story, hang_after_head, good, policy="round-robin",
        client_timeout_secs=0.1, first_byte_timeout_secs=1,
    )  # fmt: skip


def test_an_answer_in_one_piece_may_take_its_time() -> None:
    """Its first byte is its last: only the whole request has a limit."""

    async def later(received: Received) -> None:
        await asyncio.sleep(0.6)
        await good(received)

    async def story(world: World) -> None:
        assert (await world.ask()).status == 200

    play(
        story, later, client_timeout_secs=0.1, first_byte_timeout_secs=0.1, idle_timeout_secs=0.1
    )  # fmt: skip


def test_a_stream_that_falls_silent_ends_with_an_error() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))
        last = reply.body.removesuffix(b"\n\n").split(b"\n\n")[-1]
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert (error["code"], error["message"]) == (
            "engine_timeout", "the engine sent nothing for too long",
        )  # fmt: skip
        assert (len(world.received()), faults(world)[0]) == (1, {"timeout": 1})

    play(story, silent_in_mid_stream, good, client_timeout_secs=0.1, idle_timeout_secs=1)


def test_a_stream_that_goes_on_slowly_is_not_silent() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))
        assert reply.body.endswith(b"[DONE]\n\n")

    play(
        story, slow_but_alive,
        client_timeout_secs=0.1, idle_timeout_secs=SILENT_S, first_byte_timeout_secs=SILENT_S,
    )  # fmt: skip


def test_a_fleet_that_answers_errors_is_not_asked_twice_beyond_the_budget() -> None:
    """Every engine is overloaded: the retries stop at their allowance, the error is passed on."""

    async def story(world: World) -> None:
        replies = [await world.ask() for _ in range(20)]

        assert {reply.status for reply in replies} == {503}
        assert len(world.received()) == 20 + 3
        assert world.gateway.dispatcher.retries == 3

    play(story, *[overloaded] * 4, retry_budget_percent=0, retry_budget_floor=3,
         disable_circuit_breaker=True, retry_initial_backoff_ms=1)  # fmt: skip


def test_requests_in_flight_over_all_clients_can_be_limited() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send("/v1/chat/completions", chat())
        await eventually(lambda: len(world.received()) == 1)
        refused = await world.ask()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        caller.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, max_concurrent_requests=1, queue_size=0)
    play(story, hang, max_concurrent_requests=1, queue="engine")


def test_a_caller_that_waits_too_long_for_the_limit_receives_408_and_the_others_wait_on() -> None:
    async def story(world: World) -> None:
        first, second = await world.connect(), await world.connect()
        first.send("/v1/chat/completions", chat())
        await eventually(lambda: len(world.received()) == 1)
        second.send("/v1/chat/completions", chat())
        await eventually(lambda: len(world.gateway.dispatcher.queue) == 1)
        refused = await world.ask()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        late = await second.reply()
        assert (late.status, late.headers["retry-after"]) == (408, "1")
        assert late.error()["code"] == "request_timeout"
        assert len(world.received()) == 1
        first.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, max_concurrent_requests=1, queue_size=1, queue_timeout_secs=0.5,
         client_timeout_secs=1)  # fmt: skip


def test_a_request_whose_engine_is_gone_moves_whatever_the_budget() -> None:
    async def story(world: World) -> None:
        replies = [await world.ask() for _ in range(4)]
        assert [reply.status for reply in replies] == [200] * 4
        # A retry takes a turn as well, so that each request begins at the one that breaks.
        assert world.gateway.dispatcher.retries == 4

    play(story, break_off, good, policy="round-robin", retry_budget_percent=0,
         retry_budget_floor=0)  # fmt: skip


def test_retries_can_be_limited_and_switched_off() -> None:
    async def limited(world: World) -> None:
        assert (await world.ask()).status == 502
        assert len(world.received()) == 3

    async def off(world: World) -> None:
        assert (await world.ask()).status == 502
        assert len(world.received()) == 1

    play(limited, *[break_off] * 5, retry_max_retries=2, **NO_KEPT_CONNECTION)
    play(off, *[break_off] * 5, disable_retries=True, **NO_KEPT_CONNECTION)


def backoffs_of(world: World) -> list[tuple[asyncio.TimerHandle, float]]:
    """Collect the timer of each retry from now on, and its seconds."""
    found, later = [], world.gateway.retry_later

    def kept(ticket: Ticket, send: Callable[[], None]) -> asyncio.TimerHandle:
        timer = later(ticket, send)
        found.append((timer, timer.when() - asyncio.get_running_loop().time()))
        return timer

    world.gateway.retry_later = kept  # type: ignore[method-assign]
    return found


def test_retries_wait() -> None:
    """Longer each time: 200 ms and 400 ms, up or down a tenth."""

    async def story(world: World) -> None:
        backoffs = backoffs_of(world)
        assert (await world.ask()).status == 500
        first, second = [seconds for _, seconds in backoffs]
        assert 0.9 * 0.2 - 0.001 <= first <= 1.1 * 0.2 + 0.001
        assert 0.9 * 0.4 - 0.001 <= second <= 1.1 * 0.4 + 0.001

    play(
        story, broken, broken, broken, retry_initial_backoff_ms=200, retry_backoff_multiplier=2,
        retry_jitter_factor=0.1,
    )  # fmt: skip


def test_a_caller_that_leaves_during_the_wait_is_not_retried() -> None:
    async def story(world: World) -> None:
        backoffs = backoffs_of(world)
        caller = await world.connect()
        caller.send("/v1/chat/completions", chat())
        await eventually(lambda: len(backoffs) == 1)
        caller.reset()
        await eventually(lambda: not world.gateway.exchanges)
        ((timer, _),) = backoffs
        assert timer.cancelled()
        assert len(world.received()) == 1

    play(
        story, broken, hang, policy="round-robin", retry_initial_backoff_ms=30_000,
        retry_jitter_factor=0,
    )  # fmt: skip

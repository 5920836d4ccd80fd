"""What sglang-router's own tests expect of a router, asked of the gateway: a test for each row of the table.

The rows are in docs/reference/compatibility.md, "Behaviours of sglang-router", with what sglang-router 0.3.2
was seen to do and, where the gateway does otherwise, why. Its tests run workers that sleep, fail and crash;
here these are the engines' scripts.
"""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.gateway.operators import operate
from tests.e2e.gateway.scripts import (
    Received,
    break_off,
    broken,
    chat,
    endless,
    events,
    good,
    hang,
    whole,
)
from tests.e2e.gateway.world import (
    NO_KEPT_CONNECTION,
    FakeEngine,
    World,
    eventually,
    play,
)
from tests.e2e.peers.rows import (
    COMPLETIONS,
    QUICK,
    fails,
    prompt,
    shares,
    slow,
    statuses,
    together,
)

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "reference" / "compatibility.md"

# -- retries


def test_an_error_is_retried_at_a_healthy_engine() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 4) == [200] * 4
        assert shares(world)[0] >= 1

    play(story, broken, good, good, policy="round_robin", retry_max_retries=3, **QUICK)


def test_without_retries_the_failure_is_the_answer() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 2) == [500] * 2
        assert shares(world) == [2]

    play(story, broken, policy="round_robin", disable_retries=True)


def test_a_crash_is_retried_at_another_engine() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 3) == [200] * 3

    play(story, break_off, good, policy="round_robin", **QUICK, **NO_KEPT_CONNECTION)


def test_where_every_engine_fails_the_engines_own_answer_is_passed_on() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 4) == [500] * 4

    play(story, broken, broken, policy="round_robin", cb_failure_threshold=3, **QUICK)


# -- the circuit breaker


def test_the_breaker_of_the_only_engine_refuses_no_request() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 8) == [500] * 3 + [200] * 5
        (engine,) = world.gateway.pool.watches()
        assert engine[2].is_open

    play(
        story, fails(3), policy="round_robin", cb_failure_threshold=3, cb_success_threshold=2,
        disable_retries=True,
    )  # fmt: skip


def test_the_breaker_of_one_engine_is_its_own() -> None:
    async def story(world: World) -> None:
        said = await statuses(world, 20)
        assert said.count(500) == 2
        assert said[-10:] == [200] * 10
        assert shares(world)[0] == 2

    play(
        story, broken, good, policy="round_robin", cb_failure_threshold=2, disable_retries=True
    )  # fmt: skip


def test_a_trial_that_fails_opens_the_breaker_again() -> None:
    async def story(world: World) -> None:
        failing, _ = world.engines
        for _ in range(2):  # opened, and opened again by the trial
            sent = len(failing.received)
            await eventually_asked(world, failing, sent)
            after = len(failing.received)
            assert await statuses(world, 6) == [200] * 6
            assert len(failing.received) == after

    play(
        story, broken, good, policy="round_robin", cb_failure_threshold=1, cb_success_threshold=1,
        cb_timeout_duration_secs=0.3, disable_retries=True, client_timeout_secs=0.1,
    )  # fmt: skip


async def eventually_asked(world: World, engine: FakeEngine, sent: int) -> None:
    """Ask until the engine was sent one more."""
    async with asyncio.timeout(30):
        while len(engine.received) == sent:
            await world.ask()
            await asyncio.sleep(0.01)


def test_trials_that_succeed_close_the_breaker() -> None:
    async def story(world: World) -> None:
        mended, _ = world.engines
        watch = world.gateway.pool._watches[mended.url]
        async with asyncio.timeout(30):
            while not (len(mended.received) > 2 and watch.engine.breaker.phase.value == "closed"):
                await world.ask()
                await asyncio.sleep(0.01)
        before = len(mended.received)
        assert await statuses(world, 6) == [200] * 6
        assert len(mended.received) == before + 3

    play(
        story, fails(2), good, policy="round_robin", cb_failure_threshold=2, cb_success_threshold=2,
        cb_timeout_duration_secs=0.2, disable_retries=True, client_timeout_secs=0.1,
    )  # fmt: skip


def test_without_a_breaker_failures_take_no_engine_out() -> None:
    async def story(world: World) -> None:
        assert (await statuses(world, 12)).count(500) == 6

    play(
        story, broken, good, policy="round_robin", cb_failure_threshold=1, disable_retries=True,
        disable_circuit_breaker=True,
    )  # fmt: skip


def test_breaker_and_retries_together_show_the_caller_no_failure() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 12) == [200] * 12

    play(story, broken, good, policy="round_robin", cb_failure_threshold=2, **QUICK)


@pytest.mark.parametrize("status", [400, 422, 429])
def test_a_callers_mistake_opens_no_breaker(status: int) -> None:
    async def story(world: World) -> None:
        said = await statuses(world, 12)
        assert Counter(said) == {status: 6, 200: 6}

    play(story, fails(99, status), good, policy="round_robin", cb_failure_threshold=2)


# -- limits


def test_over_the_limit_without_a_queue_is_429() -> None:
    async def story(world: World) -> None:
        assert await together(world, 8) == {200: 2, 429: 6}
        assert sum(shares(world)) == 2

    play(story, slow(0.3), policy="round_robin", max_concurrent_requests=2, queue_size=0)


def test_over_the_limit_a_full_queue_is_429_and_a_long_wait_408() -> None:
    async def story(world: World) -> None:
        first, second = await world.connect(), await world.connect()
        first.send(COMPLETIONS, prompt("runs"))
        await eventually(lambda: len(world.received()) == 1)
        second.send(COMPLETIONS, prompt("waits"))
        await eventually(lambda: len(world.gateway.dispatcher.queue) == 1)
        assert await together(world, 2) == {429: 2}
        assert (await second.reply()).status == 408
        first.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(
        story, hang, policy="round_robin", max_concurrent_requests=1, queue_size=1,
        queue_timeout_secs=0.2, client_timeout_secs=0.2,
    )  # fmt: skip


def test_who_waits_for_the_limit_less_than_the_timeout_is_served() -> None:
    async def story(world: World) -> None:
        assert await together(world, 6) == {200: 6}
        assert max(most) == 2

    running, most = [0], [0]

    async def counting(received: Received) -> None:
        running[0] += 1
        most.append(running[0])
        await asyncio.sleep(0.05)
        running[0] -= 1
        await good(received)

    play(story, counting, policy="round_robin", max_concurrent_requests=2, queue_size=10)


def test_without_a_limit_a_burst_is_served() -> None:
    async def story(world: World) -> None:
        assert await together(world, 40) == {200: 40}

    play(story, good, policy="round_robin", max_concurrent_requests=-1)


# -- keys


def test_an_engines_key_is_asked_of_the_caller() -> None:
    async def checking(received: Received) -> None:
        if "bearer correct" in received.head.lower():
            await good(received)
        else:
            whole(received, 401, b'{"error":{"message":"Unauthorized"}}')

    async def story(world: World) -> None:
        assert (await world.ask()).status == 401
        assert (await world.ask(authorization="Bearer wrong")).status == 401
        assert (await world.ask(authorization="Bearer correct")).status == 200

    play(story, checking, policy="round_robin")


def test_a_key_of_the_gateways_own_is_asked_of_the_caller() -> None:
    async def story(world: World) -> None:
        assert (await world.ask()).status == 401
        assert (await world.ask(authorization="Bearer wrong")).status == 401
        assert (await world.ask(authorization="Bearer gw")).status == 200
        assert "bearer gw" not in world.received()[0].head.lower()

    play(story, good, policy="round_robin", tenant_api_key=("everybody:gw",))


# -- engines that come and go


def test_an_engine_that_fails_its_probes_gets_no_request() -> None:
    async def story(world: World) -> None:
        sick, _ = world.engines
        sick.healthy = False
        await eventually(lambda: not world.gateway.dispatcher.engines[sick.url].up)
        before = len(sick.received)
        assert await statuses(world, 6) == [200] * 6
        assert len(sick.received) == before

    play(
        story, good, good, policy="round_robin", health_check_interval_secs=0.05,
        health_failure_threshold=2,
    )  # fmt: skip


def test_without_an_engine_every_request_is_503() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")

    play(story, policy="round_robin")


def test_an_engine_that_is_added_gets_requests_and_one_that_is_removed_gets_none() -> None:
    async def story(world: World) -> None:
        second = await FakeEngine(good).start()
        world.engines.append(second)
        added = await operate(world, "POST", "/workers", {"url": second.url})
        await eventually(lambda: world.gateway.dispatcher.engines[second.url].up)
        assert await statuses(world, 10) == [200] * 10
        assert (added.status, shares(world)) == (201, [5, 5])

        removed = await operate(world, "DELETE", f"/workers?url={second.url}")
        assert await statuses(world, 10) == [200] * 10
        assert (removed.status, shares(world)) == (200, [15, 5])
        second.stop()

    play(story, good, policy="round_robin")


# -- requests


def test_a_body_over_the_limit_is_413() -> None:
    async def story(world: World) -> None:
        assert (await world.ask(COMPLETIONS, prompt("x" * (1 << 19)))).status == 200
        assert (await world.ask(COMPLETIONS, prompt("x" * 1_250_000))).status == 413

    play(story, good, policy="round_robin", max_payload_size=1 << 20)


def test_a_stream_comes_event_by_event_to_its_end() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body == b"".join(events(usage=False))

    play(story, good, policy="round_robin")


def test_a_caller_that_leaves_frees_its_engine() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send("/v1/chat/completions", chat(stream=True))
        await caller.reader.readuntil(b"\r\n\r\n")
        assert b"data: " in await anext(caller.chunks())
        caller.reset()
        await world.engines[0].left.wait()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, endless, policy="round_robin")


def test_a_field_of_the_wrong_type_is_an_error_that_names_it() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(
            COMPLETIONS, json.dumps({"model": "m", "prompt": {"a": 1}}).encode()
        )
        assert (reply.status, reply.error()["param"]) == (400, "prompt")

    play(story, good, policy="round_robin")


def test_a_model_that_no_engine_has_is_404() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(COMPLETIONS, prompt("x", model="other"))
        assert (reply.status, reply.error()["code"]) == (404, "model_not_found")
        assert not world.received()

    play(story, good, policy="round_robin")


def test_a_path_that_is_none_is_404() -> None:
    async def story(world: World) -> None:
        assert (await world.ask("/v1/nothing")).status == 404

    play(story, good, policy="round_robin")


# -- the table


def test_every_row_of_the_table_has_its_test_and_every_test_its_row() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Behaviours of sglang-router")[2]
    rows = re.findall(r"^\| .* \| `(\w+)` \|$", text.partition("\n## ")[0], re.MULTILINE)
    found = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    tests = re.findall(r"^def test_(\w+)", "".join(found), re.MULTILINE)

    assert sorted([*rows, "every_row_of_the_table_has_its_test_and_every_test_its_row"]) == sorted(
        tests
    )

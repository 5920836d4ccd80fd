"""A gateway in front of a vLLM and a SGLang with the same model: fair, local, no request lost.

What is asserted is who got how much, what was cached where and who was answered; never seconds.
"""

import asyncio
import json
from array import array
from collections.abc import Callable, Coroutine, Iterator
from statistics import median
from typing import Any

import pytest
import uvloop

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.routers.prefix_index.precise import Knowledge
from tests.e2e.gateway.world import eventually
from tests.e2e.kv_events.prompts import numbers
from tests.e2e.queueing.engine import FLOOD, LIGHT, Outcome, Traffic
from tests.sglang.fleet import BLOCK_LEN, PATIENCE_S, Engines, Fleet, gateway_before, running
from tests.sglang.server import counters

pytestmark = pytest.mark.e2e

# Of each some wait at the gateway at all times, though all that is in flight may for a moment be of one: up
# to twenty requests. One asks three times as much as the other.
CALLERS = {FLOOD: 72, LIGHT: 24}
# Service of two clients may differ by some thousand tokens at any time: 600 answers are 45,000 tokens.
WARM, ANSWERS = 100, 600
# Requests that were sent and have not begun, of both engines, once the gateway has learnt their capacity.
LEARNT = 12
# Of an answer: so long that these engines end some ten requests between two readings of their load, no more.
OUTPUTS = 32
SHARED = 320  # tokens of a prompt that others begin with, too


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with running(tmp_path_factory.mktemp("fleet")) as both:
        yield both


def tell(
    engines: Engines, story: Callable[[Fleet], Coroutine[Any, Any, None]], **settings: object
) -> None:
    async def run() -> None:
        async with gateway_before(engines, **settings) as fleet:
            await story(fleet)

    uvloop.run(run())


async def known(fleet: Fleet) -> None:
    """Wait until all of both caches is known."""

    def is_known() -> bool:
        if not all(url in fleet.index for url in fleet.engines.urls):
            return False
        return {fleet.index.knowledge(url) for url in fleet.engines.urls} == {Knowledge.COMPLETE}

    await eventually(is_known, within=PATIENCE_S)


def answered(fleet: Fleet, url: str) -> int:
    """Return how many prompts the engine answered with its cached tokens reported."""
    estimates = fleet.gateway.dispatcher.estimates.of_each()
    return estimates[url].count if url in estimates else 0


async def flooded(fleet: Fleet) -> Outcome:
    async with asyncio.timeout(PATIENCE_S):
        traffic = Traffic(fleet.gateway, CALLERS, outputs=OUTPUTS)
        return await traffic.run(warm=WARM, answers=ANSWERS, learnt=LEARNT)


def test_each_engine_hears_from_the_gateway_who_asks(engines: Engines) -> None:
    """In its own field of one and the same body; what a caller claims there is not believed."""

    async def story(fleet: Fleet) -> None:
        await known(fleet)
        claims = {
            "vllm_xargs": {"fair_client": "mallory"},
            "custom_params": {"fair_client": "mallory"},
        }
        replies = await asyncio.gather(
            *(fleet.ask("alice", numbers(number, 100), **claims) for number in range(12))
        )
        assert {reply.status for reply in replies} == {200}
        found = await charged(engines, "alice", 12 * 4)
        assert all(each["alice"] >= 4 and "mallory" not in each for each in found), found

    tell(engines, story)


def test_both_clients_get_the_same_of_both_engines_together(engines: Engines) -> None:
    """Requests wait at the gateway, a few at a time in the engines; unordered, service is 72 to 24."""

    async def story(fleet: Fleet) -> None:
        await known(fleet)
        outcome = await flooded(fleet)
        assert_fair(outcome)
        assert median(outcome.engine_queue) <= LEARNT, outcome.engine_queue
        assert median(outcome.queued_here) >= 25, outcome.queued_here

    tell(engines, story)


def assert_fair(outcome: Outcome) -> None:
    assert outcome.statuses == {200}
    assert 0.8 <= outcome.ratio <= 1.25, outcome.served
    assert median(outcome.passed) <= 2 * CALLERS[LIGHT]


async def charged(engines: Engines, client: str, outputs: int) -> list[dict[str, float]]:
    """By each engine, once both have written so many for the client."""
    found: list[dict[str, float]] = []
    async with asyncio.timeout(PATIENCE_S):
        while sum(each.get(client, 0) for each in found) < outputs:
            found = [
                await asyncio.to_thread(counters, engine.ports[0], "fairhit_output_tokens_total")
                for engine in (engines.vllm, engines.sglang)
            ]
    return found


def holders(fleet: Fleet, prefix: list[int]) -> set[str]:
    """Return the engines that reported all full blocks of a prompt as cached."""
    asked = BlockedTokens(block_len=BLOCK_LEN).extended(array("I", prefix).tobytes())
    found = fleet.index.match(asked.chunks)
    return {url for url in fleet.engines.urls if found.of(url) == len(prefix) // BLOCK_LEN}


def test_who_shares_a_prefix_goes_where_it_is(engines: Engines) -> None:
    """
    Five prefixes, some at either engine; each later request finds its own, wherever that is. Turn
    and turn about would miss them: five is odd.
    """

    async def story(fleet: Fleet) -> None:
        await known(fleet)
        prefixes = [numbers(1000 + number, SHARED) for number in range(5)]
        await asyncio.gather(*(fleet.cached("a", [*prefix, 7]) for prefix in prefixes))
        await eventually(
            lambda: all(holders(fleet, prefix) for prefix in prefixes), within=PATIENCE_S
        )
        at = [holders(fleet, prefix) for prefix in prefixes]
        assert set().union(*at) == set(engines.urls), at
        again = [
            await fleet.cached(client, prefix + numbers(number, 40))
            for number, client in enumerate("abc")
            for prefix in prefixes
        ]
        assert min(again) >= SHARED - SHARED % 32, again
        errors = fleet.gateway.dispatcher.estimates.of_each()
        assert sum(error.over + error.under for error in errors.values()) <= 20 * 32

    tell(engines, story, worker_quantum=100_000)


def test_a_killed_engines_requests_are_answered_by_the_other_and_it_comes_back_empty(
    engines: Engines,
) -> None:
    """It restarts without the plug-in: the gateway is as fair before a stock engine and a plugged one."""

    async def story(fleet: Fleet) -> None:
        await known(fleet)
        vllm, sglang = map(fleet.worker, engines.urls)
        asked = [
            asyncio.create_task(fleet.ask("ab"[number % 2], numbers(number, 60), max_tokens=60))
            for number in range(24)
        ]
        await eventually(lambda: len(sglang.tickets) >= 4, within=PATIENCE_S)
        assert not any(task.done() for task in asked)
        engines.kill_sglang()
        replies = await asyncio.gather(*asked)
        assert [reply.status for reply in replies] == [200] * 24
        assert {json.loads(r.body)["usage"]["completion_tokens"] for r in replies} == {60}
        assert vllm.up and not sglang.up
        assert engines.sglang.url not in fleet.index  # with all that was known of its cache

        engines.sglang.policy = "fcfs"
        await asyncio.to_thread(engines.sglang.start)
        await known(fleet)
        assert fleet.index.confirmed(engines.sglang.url) <= 1  # of the probe that waited for it

        before = answered(fleet, engines.sglang.url)
        outcome = await flooded(fleet)
        assert_fair(outcome)
        assert answered(fleet, engines.sglang.url) - before > ANSWERS / 5  # it has work again

    tell(engines, story)

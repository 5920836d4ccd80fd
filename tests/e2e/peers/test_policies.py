"""What sglang-router's tests expect of its policies, by its names for them: rows of the same table."""

import asyncio
import json
from pathlib import Path

import pytest
import uvloop

from tests.e2e.gateway.process import running
from tests.e2e.gateway.scripts import chat, good, hang
from tests.e2e.gateway.world import FakeEngine, World, eventually, play
from tests.e2e.peers.rows import COMPLETIONS, KEY, home_of, prompt, shares, slow, statuses


def test_round_robin_sends_each_engine_as_many() -> None:
    async def story(world: World) -> None:
        assert await statuses(world, 12) == [200] * 12
        assert shares(world) == [4, 4, 4]

    play(story, good, good, good, policy="round_robin")


def test_random_sends_to_every_engine() -> None:
    async def story(world: World) -> None:
        await statuses(world, 12)
        assert all(shares(world))

    play(story, good, good, good, policy="random")


@pytest.mark.parametrize("text", ["repeated prompt for cache", "a long prompt for a cache " * 40])
def test_cache_aware_sends_one_prompt_to_one_engine(text: str) -> None:
    async def story(world: World) -> None:
        for _ in range(12):
            assert (await world.ask(COMPLETIONS, prompt(text))).status == 200
        assert max(shares(world)) >= 10, shares(world)

    play(story, good, good, policy="cache_aware")


def test_cache_aware_spreads_prompts_that_differ() -> None:
    async def story(world: World) -> None:
        asked = [world.ask(COMPLETIONS, prompt(f"{number} " * 200)) for number in range(40)]
        replies = await asyncio.gather(*asked)
        assert {reply.status for reply in replies} == {200}
        assert min(shares(world)) >= 5, shares(world)

    play(story, slow(0.03), slow(0.03), slow(0.03), policy="cache_aware")


def test_power_of_two_prefers_the_less_loaded() -> None:
    async def story(world: World) -> None:
        _, fast = world.engines
        callers = []
        for number in range(1, 13):
            callers.append(await world.connect())
            callers[-1].send(COMPLETIONS, prompt("p"))
            await eventually(lambda sent=number: len(world.received()) == sent)
            await eventually(lambda: not world.gateway.dispatcher.engines[fast.url].tickets)
        # Of two engines both are drawn, and the one with nothing to do is chosen.
        assert shares(world)[0] <= 1
        for caller in callers:
            caller.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, good, policy="power_of_two")


def test_manual_keeps_a_routing_key_at_its_engine_and_spreads_keys() -> None:
    async def story(world: World) -> None:
        homes = {}
        for number in range(12):
            key = f"session-{number}"
            homes[key] = await home_of(world, key)
            assert [await home_of(world, key) for _ in range(3)] == [homes[key]] * 3
        assert len(set(homes.values())) > 1
        before = shares(world)
        await statuses(world, 6)  # without a key
        assert sum(sent > was for sent, was in zip(shares(world), before, strict=True)) >= 1

    play(story, good, good, good, policy="manual")


def test_manual_reads_the_header_that_is_named() -> None:
    async def story(world: World) -> None:
        for number in range(8):
            assert (await world.ask(x_session_id="one", **{KEY: f"k{number}"})).status == 200
        assert sorted(shares(world)) == [0, 0, 8]
        assert b"x-session-id: one" in world.received()[0].raw  # it is the engine's business, too

    play(story, good, good, good, policy="session", routing_key_header="X-Session-Id")


def test_manual_assigns_the_keys_of_a_lost_engine_anew_and_leaves_the_others() -> None:
    async def story(world: World) -> None:
        homes = {key: await home_of(world, key) for key in map(str, range(12))}
        lost = homes["0"]
        world.engines[lost].stop()
        world.gateway.pool.remove(world.engines[lost].url)
        again = {key: await home_of(world, key) for key in homes}

        assert lost not in again.values()
        assert all(again[key] == home for key, home in homes.items() if home != lost)
        assert {key: await home_of(world, key) for key in homes} == again

    play(story, good, good, good, policy="manual")


def test_manual_moves_no_key_to_an_engine_that_is_added() -> None:
    async def story(world: World) -> None:
        homes = {key: await home_of(world, key) for key in map(str, range(12))}
        added = await FakeEngine(good).start()
        world.engines.append(added)
        world.gateway.pool.add(added.url)
        await eventually(lambda: world.gateway.dispatcher.engines[added.url].up)
        assert {key: await home_of(world, key) for key in homes} == homes
        assert 2 in [await home_of(world, f"new-{number}") for number in range(30)]
        added.stop()

    play(story, good, good, policy="manual")


def test_manual_waits_for_its_engine_beside_an_idle_one() -> None:
    async def story(world: World) -> None:
        callers = [await world.connect() for _ in range(5)]
        for caller in callers:
            caller.send("/v1/chat/completions", chat(), **{KEY: "one"})
        await eventually(lambda: len(world.gateway.dispatcher.queue) == 4)
        await eventually(lambda: len(world.received()) == 1)  # it is sent before the engine has it
        assert sorted(shares(world)) == [0, 0, 1]
        for caller in callers:
            caller.reset()
        await eventually(lambda: not world.gateway.exchanges)

    play(story, hang, hang, hang, policy="manual", max_engine_requests=1)


def test_the_log_says_what_another_gateways_name_and_key_became(tmp_path: Path) -> None:
    async def story() -> None:
        engine = await FakeEngine(good).start()
        settings = {"worker_urls": [engine.url], "policy": "cache_aware", "api_key": "k"}
        async with running(tmp_path, **settings) as gateway:
            await gateway.says("--policy cache-aware: another gateway's name; the router is d2lpm")
            await gateway.says("callers need no key")
            listed = json.loads((await gateway.ask("/workers")).body)
        assert listed["policy"] == "d2lpm"
        engine.stop()

    uvloop.run(story())

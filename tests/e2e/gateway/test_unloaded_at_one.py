"""An engine that answers 404: what it was asked for may have been unloaded there, and be elsewhere."""

import asyncio
import json

from tests.e2e.gateway.scripts import Received, chat, good, whole
from tests.e2e.gateway.world import TIMEOUT_S, FakeEngine, World, play

UNLOADED = {"error": {"message": "The model `ad` does not exist.", "type": "NotFoundError"}}


def has(world: World, engine: FakeEngine, model: str) -> bool:
    models = world.gateway.dispatcher.engines[engine.url].models
    return models is not None and model in models


async def ask(world: World, model: str) -> int:
    return (await world.ask(body=chat(model=model))).status


def test_an_adapter_unloaded_at_one_of_two_engines_is_served_by_the_other() -> None:
    """The first request is repeated at the other engine; later ones are not sent to the first."""

    async def story(world: World) -> None:
        for engine in world.engines:
            engine.models = ("m", "ad")
        assert await ask(world, "ad") == 200  # read by now
        first, second = world.engines
        first.models = ("m",)
        async with asyncio.timeout(TIMEOUT_S):
            while has(world, first, "ad"):
                assert await ask(world, "ad") == 200
        so_far = len(first.received)
        assert [await ask(world, "ad") for _ in range(4)] == [200] * 4
        assert len(first.received) == so_far
        assert has(world, second, "ad")

    async def fitting(received: Received) -> None:
        model, port = received.json()["model"], received.writer.get_extra_info("sockname")[1]
        (engine,) = [engine for engine in engines if engine.url.endswith(f":{port}")]
        if model in engine.models:
            await good(received)
        else:
            whole(received, 404, json.dumps(UNLOADED).encode())

    engines: list[FakeEngine] = []

    async def known(world: World) -> None:
        engines.extend(world.engines)
        await story(world)

    play(known, fitting, fitting, policy="round-robin", health_check_interval_secs=3600)


def test_what_an_engine_has_not_is_asked_for_at_one_other_at_most() -> None:
    """And its answer passes through."""

    async def missing(received: Received) -> None:
        whole(received, 404, json.dumps(UNLOADED).encode())

    async def story(world: World) -> None:
        reply = await world.ask()
        assert (reply.status, json.loads(reply.body)) == (404, UNLOADED)
        assert len(world.received()) == 2
        assert world.spent() == 0

    play(story, missing, missing, missing)

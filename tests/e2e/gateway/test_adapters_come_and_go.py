"""LoRA adapters that are loaded and unloaded in engines that serve: who is asked for them, and when."""

import asyncio
import json
from typing import Any

import pytest

from fairhit.gateway.pool import model_catalog as listing
from tests.e2e.gateway.scripts import Received, chat, good
from tests.e2e.gateway.world import CHAT, FakeEngine, World, eventually, play

OFTEN = {"health_check_interval_secs": 0.02}


def has(world: World, engine: FakeEngine, model: str) -> bool:
    models = world.gateway.dispatcher.engines[engine.url].models
    return models is not None and model in models


async def ask(world: World, model: str) -> int:
    return (await world.ask(body=chat(model=model))).status


def count_lists(engine: FakeEngine) -> list[str]:
    """Heads of the requests for its list from now on."""
    asked, probe = [], engine.probe

    def counting(head: str, writer: asyncio.StreamWriter) -> None:
        if head.startswith("GET /v1/models "):
            asked.append(head)
        probe(head, writer)

    engine.probe = counting  # type: ignore[method-assign]
    return asked


def test_an_adapter_just_loaded_is_served_though_no_probe_has_seen_it() -> None:
    """The next probe is a minute away: the request itself has the lists read, and waits for that."""

    async def story(world: World) -> None:
        _, second = world.engines
        assert await ask(world, "ad") == 404
        second.models = ("m", "ad")
        assert await ask(world, "ad") == 200
        assert [received.json()["model"] for received in second.received] == ["ad"]
        second.models = ("m", "ad", "more")
        assert [await ask(world, model) for model in ("more", "ad", "none")] == [200, 200, 404]
        assert len(second.received) == 3

    play(story, good, good)


def test_unknown_models_cause_at_most_one_reading_a_second() -> None:
    async def story(world: World) -> None:
        asked = count_lists(world.engines[0])
        began_s = asyncio.get_running_loop().time()
        for _ in range(2):
            statuses = await asyncio.gather(*(ask(world, f"no{n}") for n in range(30)))
            assert statuses == [404] * 30
        took_s = asyncio.get_running_loop().time() - began_s
        assert 1 <= len(asked) <= 1 + took_s
        assert not world.received()

    play(story, good)


def test_who_waits_for_a_list_holds_a_place_of_its_client_and_gives_it_back() -> None:
    async def story(world: World) -> None:
        (engine,) = world.engines
        go_on, probe = asyncio.Event(), engine.probe

        def held(head: str, writer: asyncio.StreamWriter) -> None:
            if head.startswith("GET /v1/models "):
                asyncio.get_running_loop().create_task(later(head, writer))
            else:
                probe(head, writer)

        async def later(head: str, writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            probe(head, writer)

        engine.probe = held  # type: ignore[method-assign]
        callers = [await world.connect() for _ in range(6)]
        for caller in callers[:4]:
            caller.send(CHAT, chat(model="no"))
        await eventually(lambda: sum(world.gateway.dispatcher.ledger._reserved.values()) == 4)
        for caller in callers[4:]:
            caller.send(CHAT, chat(model="no"))
        refused = [(await caller.reply()).status for caller in callers[4:]]
        assert refused == [429, 429]
        callers[0].reset()
        await eventually(lambda: len(world.gateway.connections) == 5)
        go_on.set()
        assert [(await caller.reply()).status for caller in callers[1:4]] == [404] * 3
        assert await ask(world, "m") == 200
        assert not world.gateway.dispatcher.ledger._reserved

    play(story, good, max_client_requests=4)


def test_probes_see_what_is_loaded_and_what_is_unloaded() -> None:
    async def story(world: World) -> None:
        (engine,) = world.engines
        engine.models = ("m", "ad")
        await eventually(lambda: has(world, engine, "ad"))
        listed = json.loads((await world.get("/v1/models")).body)["data"]
        assert [model["id"] for model in listed] == ["m", "ad"]
        assert await ask(world, "ad") == 200

        engine.models = ("m",)
        await eventually(lambda: not has(world, engine, "ad"))
        so_far = len(engine.received)
        assert await ask(world, "ad") == 404
        assert (await world.get("/v1/models/ad")).status == 404
        assert len(engine.received) == so_far
        assert await ask(world, "m") == 200

    play(story, good, **OFTEN)


@pytest.mark.parametrize("settings", [OFTEN, {**OFTEN, "disable_health_check": True}])
def test_lists_are_read_at_most_once_a_second_however_often_engines_are_probed(
    settings: dict[str, Any],
) -> None:
    async def story(world: World) -> None:
        asked = count_lists(world.engines[0])
        began_s = asyncio.get_running_loop().time()
        await eventually(lambda: len(asked) >= 2)
        took_s = asyncio.get_running_loop().time() - began_s
        assert len(asked) <= 1 + took_s

    play(story, good, **settings)


@pytest.mark.parametrize("answer", [b"no list", b'{"data": []}', b'{"data": [{"name": 1}]}'])
def test_a_list_that_cannot_be_read_changes_nothing(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_INTERVAL_S", 0.0)

    async def story(world: World) -> None:
        (engine,) = world.engines
        asked = count_lists(engine)
        engine.models_answer = answer
        await eventually(lambda: len(asked) > 3)
        assert has(world, engine, "m")
        assert await ask(world, "m") == 200
        assert await ask(world, "no") == 404

    play(story, good, **OFTEN)


def test_an_engine_that_listed_nothing_at_first_is_believed_later() -> None:
    async def story(world: World) -> None:
        (engine,) = world.engines
        assert await ask(world, "anything") == 200
        engine.models_answer = None
        await eventually(lambda: has(world, engine, "m"))
        assert await ask(world, "anything") == 404
        assert await ask(world, "m") == 200

    play(story, good, models_answer=b"{}", **OFTEN)


def test_a_request_that_waits_for_an_adapter_unloaded_everywhere_is_refused() -> None:
    go_on = asyncio.Event()

    async def held(received: Received) -> None:
        await go_on.wait()
        await good(received)

    async def story(world: World) -> None:
        (engine,) = world.engines
        engine.models = ("m", "ad")
        await eventually(lambda: has(world, engine, "ad"))
        callers = [await world.connect() for _ in range(3)]
        for caller, model in zip(callers, ("m", "ad", "m"), strict=True):
            caller.send(CHAT, chat(model=model))
        await eventually(lambda: len(world.gateway.dispatcher.queue) == 2)
        engine.models = ("m",)
        assert (await callers[1].reply()).status == 404
        go_on.set()
        assert [(await caller.reply()).status for caller in (callers[0], callers[2])] == [200, 200]
        assert [received.json()["model"] for received in engine.received] == ["m", "m"]

    play(story, held, queue="gateway", max_engine_requests=1, **OFTEN)

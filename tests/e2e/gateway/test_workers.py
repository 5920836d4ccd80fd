"""Engines that are added, drained and removed by an operator, and those that the breaker takes out."""

import asyncio
import json
from collections.abc import Iterable

import jsonschema
import pytest

from fairhit.errors import ConfigError
from fairhit.gateway.admin.control import PATHS
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway.operators import operate
from tests.e2e.gateway.scripts import (
    Received,
    begin_stream,
    broken,
    chat,
    chunk,
    events,
    good,
    hang,
)
from tests.e2e.gateway.world import CHAT, FakeEngine, World, eventually, play, turns


async def states(world: World) -> dict[str, dict[str, object]]:
    listed = json.loads((await operate(world, "GET", "/workers")).body)["workers"]
    return {worker["url"]: worker for worker in listed}


def test_an_engine_is_added_drained_and_removed_under_load() -> None:
    """Twenty callers stream all the while; each gets every event, whatever happens to the engines."""
    asked = 0

    async def slowly(received: Received) -> None:
        nonlocal asked
        asked += 1
        begin_stream(received)
        for event in events(usage=True):
            chunk(received, event)
            await asyncio.sleep(0.01)
        chunk(received, b"")

    async def story(world: World) -> None:
        first = world.engines[0]
        second = await FakeEngine(slowly).start()
        done = False

        async def caller() -> list[int]:
            statuses = []
            while not done:
                reply = await world.ask(body=chat(stream=True))
                assert reply.body.endswith(b"[DONE]\n\n")
                statuses.append(reply.status)
            return statuses

        callers = [asyncio.ensure_future(caller()) for _ in range(20)]
        await eventually(lambda: asked > 30)
        added = await operate(world, "POST", "/workers", {"url": second.url})
        assert added.status == 201
        await eventually(lambda: len(second.received) > 10)
        drained = await operate(world, "POST", "/workers/drain", {"url": first.url})
        assert (drained.status, json.loads(drained.body)["state"]) == (202, "draining")
        await eventually(lambda: first.url not in world.gateway.dispatcher.engines)
        so_far, elsewhere = len(first.received), len(second.received)
        await eventually(lambda: len(second.received) >= elsewhere + 60)  # of each caller, three
        assert len(first.received) == so_far
        done = True
        assert {status for task in callers for status in await task} == {200}
        assert list(await states(world)) == [second.url]
        second.stop()

    play(story, slowly)


def test_removing_moves_what_waits_and_says_so_when_there_is_no_such_engine() -> None:
    async def story(world: World) -> None:
        hanging, sound = world.engines
        callers = [await world.connect() for _ in range(2)]
        for caller in callers:
            caller.send(CHAT, chat())
        await eventually(lambda: len(hanging.received) == 1)
        removed = await operate(world, "DELETE", f"/workers?url={hanging.url}")
        again = await operate(world, "DELETE", "/workers", {"url": hanging.url})

        assert (removed.status, json.loads(removed.body)["state"]) == (200, "removed")
        assert (again.status, again.error()["param"]) == (404, "url")
        assert [(await caller.reply()).status for caller in callers] == [200, 200]
        assert list(await states(world)) == [sound.url]

    play(story, hang, good, policy="round-robin")


def test_an_engine_that_drains_can_be_had_back() -> None:
    async def story(world: World) -> None:
        url = world.engines[0].url
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        await operate(world, "POST", "/workers/drain", {"url": url})
        assert (await world.ask()).status == 503
        assert (await operate(world, "POST", "/workers", {"url": url})).status == 200
        ((_, watch, _),) = world.gateway.pool.watches()
        removal = watch.tasks[-1]
        caller.reset()
        await eventually(lambda: not world.gateway.exchanges)
        await eventually(removal.done)
        await turns()

        state = (await states(world))[url]
        assert (state["state"], state["takes_requests"]) == ("up", True)

    play(story, hang)


@pytest.mark.parametrize(
    ("method", "path", "document", "status", "param"),
    [
        ("POST", "/workers", {"url": "engine:8000"}, 400, "url"),
        ("POST", "/workers", {"url": 5}, 400, "url"),
        ("POST", "/workers", {"url": "http://e :1"}, 400, "url"),
        ("POST", "/workers", {"url": "http://e:1/a b"}, 400, "url"),
        ("POST", "/workers", {"url": "http://e:1/\t"}, 400, "url"),
        ("POST", "/workers", {"url": "http://e:1", "weight": 2}, 400, "weight"),
        ("POST", "/workers", {"url": "http://e:1", "model": ""}, 400, "model"),
        ("POST", "/workers", ["http://e:1"], 400, None),
        ("POST", "/workers/drain", {}, 400, "url"),
        ("POST", "/workers/drain", {"url": "http://e:1"}, 404, "url"),
        ("DELETE", "/workers", None, 400, "url"),
        ("DELETE", "/workers?url=a&url=b", None, 400, "url"),
    ],
)
def test_what_an_operator_gets_wrong_is_named(
    method: str, path: str, document: object, status: int, param: str | None
) -> None:
    async def story(world: World) -> None:
        reply = await operate(world, method, path, document)
        assert (reply.status, reply.error()["param"]) == (status, param)
        assert list(await states(world)) == [world.engines[0].url]

    play(story, good)


def test_the_gateway_is_no_engine_of_its_own() -> None:
    """The gateway would forward requests to itself without end."""

    async def story(world: World) -> None:
        for name in ("127.0.0.1", "localhost"):
            url = f"http://{name}:{world.gateway.port}"
            reply = await operate(world, "POST", "/workers", {"url": url})
            assert (reply.status, reply.error()["param"]) == (400, "url")
            assert "this gateway's own address" in reply.error()["message"]
            with pytest.raises(ConfigError, match="this gateway's own address"):
                world.gateway.apply(world.gateway.settings.replaced(worker_urls=(url,)))
        assert list(await states(world)) == [world.engines[0].url]

    play(story, good)
    with pytest.raises(ConfigError, match="this gateway's own address"):
        Gateway(GatewaySettings(port=8123, worker_urls=("http://localhost:8123",)))


def test_other_methods_are_refused_with_those_there_are() -> None:
    async def story(world: World) -> None:
        replies = [
            await operate(world, "PUT", "/workers", {}),
            await operate(world, "GET", "/workers/drain"),
            await operate(world, "POST", "/health", {}),
            await operate(world, "GET", CHAT),
        ]
        assert [(reply.status, reply.headers["allow"]) for reply in replies] == [
            (405, "get, post, delete"), (405, "post"), (405, "get"), (405, "post"),
        ]  # fmt: skip

    play(story, good)


def test_with_an_admin_key_only_who_shows_it_may() -> None:
    async def story(world: World) -> None:
        key = "Bearer secret-of-ops"
        assert (await operate(world, "GET", "/workers")).status == 401
        wrong = await operate(world, "POST", "/workers", {"url": "http://e:1"}, authorization="no")
        assert wrong.status == 401
        assert (await operate(world, "GET", "/workers", authorization=key)).status == 200
        assert (await operate(world, "GET", "/health")).status == 200
        assert (await world.ask()).status == 200

    play(story, good, admin_api_key="secret-of-ops")


def test_the_breaker_opens_on_an_engine_that_answers_500_and_closes_when_it_is_well() -> None:
    """The engine passes its probes, and only its responses fail; the other engine serves."""
    sick = True

    async def sometimes(received: Received) -> None:
        await (broken if sick else good)(received)

    async def story(world: World) -> None:
        nonlocal sick
        patient, _ = world.engines
        while (await states(world))[patient.url]["circuit"] == "closed":
            assert (await world.ask()).status == 200
        asked = len(patient.received)
        for _ in range(10):
            assert (await world.ask()).status == 200
        assert len(patient.received) == asked == 4
        assert (await states(world))[patient.url]["faults"] == {"status": 4}
        metrics = (await world.get("/metrics")).body.decode()
        name = f'worker="{patient.url}"'
        assert f'fairhit_worker_circuit{{state="open",{name}}} 1.0' in metrics
        assert f'fairhit_worker_faults_total{{kind="status",{name}}} 4.0' in metrics

        sick = False
        soon = world.gateway.settings.replaced(cb_timeout_duration_secs=0.01)
        world.gateway.apply(soon)
        circuit = world.gateway.pool.engine(patient.url).breaker
        await eventually(lambda: circuit.phase.value == "half-open")
        while circuit.phase.value == "half-open":
            assert (await world.ask()).status == 200
        assert len(patient.received) == 4 + 2
        assert (await states(world))[patient.url]["circuit"] == "closed"

    play(
        story, sometimes, good, policy="round-robin", client_timeout_secs=0.1,
        cb_failure_threshold=4, cb_timeout_duration_secs=600, cb_success_threshold=2,
    )  # fmt: skip


def test_the_last_engine_is_not_taken_out() -> None:
    """The engine's own error is worth more to clients than the gateway's 503."""

    async def story(world: World) -> None:
        for _ in range(5):
            reply = await world.ask()
            assert (reply.status, reply.body) == (500, b'{"error":{"message":"EngineDeadError"}}')

    play(story, broken, cb_failure_threshold=2)


def test_models_that_an_operator_names_are_believed() -> None:
    async def story(world: World) -> None:
        a, b = world.engines
        for model in ("a", "b", "b"):
            assert (await world.ask(body=chat(model=model))).status == 200
        assert (len(a.received), len(b.received)) == (1, 2)
        assert (await world.ask(body=chat(model="m"))).status == 404

    play(story, good, good, static_models=("a", "b"))


def test_safe_off_while_it_runs() -> None:
    async def story(world: World) -> None:
        off = await operate(world, "POST", "/scheduler", {"scheduler": "fcfs"})
        assert (off.status, json.loads(off.body)) == (200, {"scheduler": "fcfs", "waiting": 0})
        assert json.loads((await operate(world, "GET", "/scheduler")).body) == json.loads(off.body)
        wrong = await operate(world, "POST", "/scheduler", {"scheduler": "lottery"})
        assert (wrong.status, wrong.error()["param"]) == (400, "scheduler")
        assert (await world.ask()).status == 200

    play(story, good)


def test_the_description_names_every_path_of_the_surface_and_its_methods() -> None:
    async def story(world: World) -> None:
        listed = json.loads((await world.get("/openapi.json")).body)["paths"]
        described = {path: {name.upper() for name in listed[path]} for path in listed}
        for path, methods in PATHS.items():
            assert described[path.decode()] == {method.decode() for method in methods}
        for path in sorted(set(described) - {path.decode() for path in PATHS}):
            known = path.replace("{id}", "m")
            assert (described[path], (await world.get(known)).status) == ({"GET"}, 200)

    play(story, good)


def test_answers_are_as_the_description_says() -> None:
    async def story(world: World) -> None:
        document = json.loads((await world.get("/openapi.json")).body)
        for path, answer in (
            ("/workers", await operate(world, "GET", "/workers")),
            ("/scheduler", await operate(world, "GET", "/scheduler")),
            ("/health", await world.get("/health")),
            ("/version", await world.get("/version")),
            ("/v1/models", await world.get("/v1/models")),
            ("/v1/models/{id}", await world.get("/v1/models/m")),
            ("/dashboard/data", await world.get("/dashboard/data?since=1")),
        ):
            content = document["paths"][path]["get"]["responses"]["200"]["content"]
            schema = {**content["application/json"]["schema"], "components": document["components"]}
            jsonschema.validate(json.loads(answer.body), schema)

    play(story, good)


def test_all_engines_replaced_at_once_leaves_no_gap() -> None:
    """The new one needs its time to start: until it answers probes the old one serves."""

    async def story(world: World) -> None:
        (old,) = world.engines
        new = await FakeEngine(good, healthy=False).start()
        world.gateway.apply(world.gateway.settings.replaced(worker_urls=(new.url,)))
        for _ in range(5):
            assert (await world.ask()).status == 200
        assert len(old.received) == 5
        new.healthy = True
        await eventually(lambda: list(world.gateway.dispatcher.engines) == [new.url])
        assert (await world.ask()).status == 200
        assert (len(old.received), len(new.received)) == (5, 1)

        nothing = world.gateway.settings.replaced(worker_urls=())
        world.gateway.apply(nothing)
        await eventually(lambda: not world.gateway.dispatcher.engines)
        new.stop()

    play(story, good)


def test_an_engine_that_was_down_has_to_be_well_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single good probe may be luck after a failure; a new engine is used after its first."""

    async def story(world: World) -> None:
        engine, dispatcher = world.engines[0], world.gateway.dispatcher
        ((_, watch, worker),) = world.gateway.pool.watches()
        assert (worker.up, watch.successes) == (True, 1)
        often = world.gateway.settings.replaced(health_check_interval_secs=0.05)
        world.gateway.apply(often)
        seen: list[int] = []
        up = dispatcher.engine_up

        def welcomed(name: str, *, models: Iterable[str] | None = None) -> None:
            seen.append(watch.successes)
            up(name, models=models)

        monkeypatch.setattr(dispatcher, "engine_up", welcomed)
        engine.healthy = False
        watch.probe_soon.set()
        await eventually(lambda: not worker.up)
        assert watch.problem == "status 503"
        engine.healthy = True
        await eventually(lambda: worker.up)
        assert (seen, watch.problem) == ([3], None)

    play(story, good, health_failure_threshold=1, health_success_threshold=3)


def test_without_health_checks_only_who_is_down_is_probed() -> None:
    async def story(world: World) -> None:
        (engine,) = world.engines
        ((_, watch, _),) = world.gateway.pool.watches()
        engine.healthy = False
        watch.listed_s = float(
            "-inf"
        )  # so that the next request, which would be a probe, reads its models

        def requests() -> int:
            return engine.probes["/health"] + engine.probes["/v1/models"]

        before = requests()
        await eventually(lambda: requests() > before)
        await turns()
        assert (await world.ask()).status == 200

        world.gateway.pool.mark_down(engine.url)
        before = engine.probes["/health"]
        await eventually(lambda: engine.probes["/health"] >= before + 3)
        assert not world.gateway.dispatcher.ready()
        engine.healthy = True
        await eventually(world.gateway.dispatcher.ready)

    play(
        story, good, disable_health_check=True, health_check_interval_secs=0.02,
        health_failure_threshold=1,
    )  # fmt: skip

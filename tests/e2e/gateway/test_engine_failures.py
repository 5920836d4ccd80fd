"""Engines that fail: retried, given up, replaced; and the caller is notified."""

import asyncio
import json

import pytest

from fairhit.dispatch import Ticket
from fairhit.gateway.proxy import exchange
from tests.e2e.gateway.scripts import (
    USAGE,
    Received,
    Script,
    an_empty_stream,
    break_off,
    broken,
    chat,
    die_in_mid_stream,
    events,
    garbage,
    good,
    half_a_body,
    half_a_head,
    hang,
    only_a_head,
    overloaded,
    reset,
    whole,
)
from tests.e2e.gateway.world import (
    CHAT,
    NO_KEPT_CONNECTION,
    FakeEngine,
    World,
    eventually,
    play,
)

BEFORE_THE_FIRST_BYTE = [
    break_off,
    reset,
    garbage,
    half_a_head,
    half_a_body,
    only_a_head,
    an_empty_stream,
    broken,
    overloaded,
]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_BYTE)
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_byte_is_retried_elsewhere(fault: Script, stream: bool) -> None:
    """Whichever engine is asked first fails; the caller does not notice, and pays once."""
    asked: list[str] = []

    async def first_time_fails(received: Received) -> None:
        asked.append(received.head)
        await (fault if len(asked) == 1 else good)(received)

    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=stream))

        assert reply.status == 200
        assert reply.body.endswith(b"[DONE]\n\n") or json.loads(reply.body)["usage"] == USAGE
        assert [len(engine.received) for engine in world.engines] == [1, 1]
        assert world.received()[0].body == world.received()[1].body
        assert world.spent() == 18 + 2 * 3
        assert world.gateway.dispatcher.retries == 1

    play(story, first_time_fails, first_time_fails, **NO_KEPT_CONNECTION)


@pytest.mark.parametrize("fault", [break_off, garbage, only_a_head])
def test_each_engine_is_tried_once_and_then_the_caller_is_notified(fault: Script) -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))

        assert (reply.status, reply.headers["retry-after"]) == (502, "1")
        assert reply.error()["code"] == "engine_failed"
        assert [len(engine.received) for engine in world.engines] == [1, 1, 1]
        assert world.spent() == 0

    play(story, fault, fault, fault, **NO_KEPT_CONNECTION)


def test_the_last_engines_own_error_is_passed_on() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()
        assert (reply.status, reply.body) == (500, b'{"error":{"message":"EngineDeadError"}}')

    play(story, broken)


def test_an_engine_that_does_not_listen_any_more_is_passed_over() -> None:
    async def story(world: World) -> None:
        world.engines[0].stop()
        for _ in range(4):
            assert (await world.ask()).status == 200
        states = json.loads((await world.get("/workers")).body)["workers"]
        assert [state["up"] for state in states] == [False, True]

    play(story, good, good, policy="round-robin")


def test_an_idle_connection_the_engine_has_closed_costs_no_retry() -> None:
    """Engines close idle connections after 5 s; the request that finds out just goes again."""

    async def close_afterwards(received: Received) -> None:
        await good(received)
        await asyncio.sleep(0.02)
        received.writer.close()

    async def story(world: World) -> None:
        for _ in range(3):
            assert (await world.ask()).status == 200
        assert world.gateway.dispatcher.retries == 0

    play(story, close_afterwards)


def test_a_request_that_breaks_engines_is_not_sent_to_one_for_ever() -> None:
    """A kept connection that breaks may just have been idle too long: one more try, and no third."""

    async def fatal(received: Received) -> None:
        await asyncio.sleep(0.05)
        await (break_off if b"fatal" in received.body else good)(received)

    async def story(world: World) -> None:
        await asyncio.gather(*(world.ask() for _ in range(5)))  # now there are connections to keep
        reply = await world.ask(body=chat(user="fatal"))

        assert reply.status == 502
        assert len(world.received()) == 5 + 2
        assert (await world.ask()).status == 200

    play(story, fatal)


def test_a_failure_in_mid_stream_ends_the_stream_with_an_error_event() -> None:
    """The caller keeps what it got, pays for that, and can tell that it was not the end."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True))
        reply = await caller.reply()
        *deltas, last = reply.body.removesuffix(b"\n\n").split(b"\n\n")

        assert b"\n\n".join(deltas) + b"\n\n" == b"".join(events(usage=False)[:3])
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert (error["code"], error["type"]) == ("engine_failed", "server_error")
        assert world.spent() == max(1, len(b"m\0\0user\0hi") // 4) + 2 * 2
        assert len(world.received()) == 1
        caller.send("/health")  # the connection is still good
        assert (await caller.reply()).status == 200

    play(story, die_in_mid_stream, die_in_mid_stream)


def test_a_hanging_engine_is_given_up_at_the_time_limit() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()

        assert (reply.status, reply.error()["code"]) == (504, "engine_timeout")
        await eventually(world.engines[0].left.is_set)

    play(story, hang, request_timeout_secs=0.3)


def test_an_engine_that_fails_its_probes_gets_no_requests_and_loses_those_that_wait() -> None:
    async def story(world: World) -> None:
        hanging, sound = world.engines
        callers = [await world.connect() for _ in range(2)]
        for caller in callers:
            caller.send(CHAT, chat())
        await eventually(lambda: len(hanging.received) == 1)
        hanging.healthy = False

        assert [(await caller.reply()).status for caller in callers] == [200, 200]
        assert (len(hanging.received), len(sound.received)) == (1, 2)
        assert (await world.ask()).status == 200
        hanging.healthy = True
        await eventually(lambda: world.gateway.dispatcher.engines[hanging.url].up)

    play(
        story, hang, good,
        policy="round-robin", health_check_interval_secs=0.05, health_failure_threshold=2,
    )  # fmt: skip


def test_a_probe_or_two_may_fail() -> None:
    """A busy engine that misses a probe must not lose its requests and its place in the index."""

    async def story(world: World) -> None:
        engine = world.engines[0]
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        engine.sick_probes = 3  # of which two fail
        ((_, watch, _),) = world.gateway.pool.watches()
        await eventually(lambda: not engine.sick_probes and watch.successes > 0)

        assert world.gateway.dispatcher.engines[engine.url].up
        assert (len(world.received()), world.gateway.dispatcher.retries) == (1, 0)
        caller.reset()

    play(story, hang, health_check_interval_secs=0.05, health_failure_threshold=3)


def test_without_an_engine_the_answer_is_503_and_readiness_says_so() -> None:
    async def story(world: World) -> None:
        assert (await world.get("/readiness")).status == 200
        world.engines[0].stop()
        replies = [await world.ask(), await world.ask(), await world.get("/v1/models")]

        assert [(reply.status, reply.headers["retry-after"]) for reply in replies] == [
            (503, "1")
        ] * 3
        assert (await world.get("/readiness")).status == 503
        assert (await world.get("/health")).status == 200

    play(story, good)


def test_an_engine_can_be_replaced_while_requests_wait_for_it() -> None:
    """A restarted engine has another port: the new one is added, the old one removed."""

    async def story(world: World) -> None:
        replacement = await FakeEngine(good).start()
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        world.gateway.pool.add(replacement.url)
        await eventually(lambda: world.gateway.dispatcher.engines[replacement.url].up)
        world.gateway.pool.remove(world.engines[0].url)

        assert (await caller.reply()).status == 200
        assert list(world.gateway.dispatcher.engines) == [replacement.url]
        replacement.stop()

    play(story, hang)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"data":null}',
        b'{"data":7}',
        b'{"data":[{"id":["m"]},{"id":null},{},5]}',
        b"[]",
        b'{"data":[{"id":"x","more":' + b"[" * 500 + b"]" * 500 + b"}]}",
    ],
)
def test_an_engine_that_lists_no_models_serves_any(answer: bytes) -> None:
    async def story(world: World) -> None:
        assert (await world.ask()).status == 200
        assert json.loads((await world.get("/v1/models")).body)["data"] == []

    play(story, good, models_answer=answer)


def test_a_bug_of_ours_does_not_end_the_watch_over_an_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        engine, workers = world.engines[0], world.gateway.dispatcher.engines

        def broken_down(name: str) -> list[Ticket]:
            monkeypatch.undo()
            raise KeyError(name)

        monkeypatch.setattr(world.gateway.dispatcher, "engine_down", broken_down)
        engine.healthy = False
        await eventually(lambda: not workers[engine.url].up)
        engine.healthy = True
        await eventually(lambda: workers[engine.url].up)

        assert [one.message for one in caplog.records if one.levelname == "ERROR"] == [
            f"probing {engine.url}: KeyError: '{engine.url}'"
        ]

    play(story, good, health_check_interval_secs=0.05, health_failure_threshold=1)


def test_models_of_all_engines_are_listed_once() -> None:
    async def story(world: World) -> None:
        listed = json.loads((await world.get("/v1/models")).body)
        assert [model["id"] for model in listed["data"]] == ["m"]

    play(story, good, good)


@pytest.mark.parametrize(
    ("path", "asked", "status", "charged"),
    [
        (CHAT, chat(max_tokens=7), 200, {"prompt": True, "output": 7}),
        ("/v1/embeddings", b'{"model":"m","input":"hi"}', 200, {"prompt": True, "output": 0}),
        ("/tokenize", b'{"model":"m","prompt":"hi"}', 200, {"prompt": False, "output": 0}),
        (CHAT, chat(), 400, {"prompt": False, "output": 0}),
    ],
)
def test_an_answer_too_long_to_hold_is_computed_once_and_charged(
    monkeypatch: pytest.MonkeyPatch, path: str, asked: bytes, status: int, charged: dict[str, int]
) -> None:
    """Any other engine's would be as long."""
    monkeypatch.setattr(exchange, "_MAX_WHOLE", 10_000)

    async def long(received: Received) -> None:
        whole(received, status, b"[" + b"1," * 10_000 + b"1]")

    async def story(world: World) -> None:
        reply = await world.ask(path, asked)

        assert (reply.status, len(world.received())) == (502, 1)
        assert "over 10000 bytes: ask for less" in reply.error()["message"]
        ((_, account),) = world.gateway.dispatcher.ledger.accounts()
        service = account.service
        assert (service.extend_len > 0, service.output_len) == (
            charged["prompt"],
            charged["output"],
        )
        assert not any(worker.tickets for worker in world.gateway.dispatcher.engines.values())
        assert (await world.ask(path, asked)).status == 502  # and no breaker has opened

    play(story, long, long, cb_failure_threshold=1)

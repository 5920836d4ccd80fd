"""Load in the engines' metrics, which is read without a new connection each time."""

import asyncio
import logging
import re
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

from fairhit.dispatch import Dispatcher, QueueRules
from fairhit.errors import EngineFailed
from fairhit.gateway.http.engine_connection import EngineConnections
from fairhit.gateway.pool import health_probe as probe
from fairhit.gateway.pool import load_monitor
from fairhit.gateway.pool.load_monitor import (
    EngineLoad,
    LoadMonitor,
    read_consumption,
    read_load,
    read_prices,
)
from fairhit.gateway.settings import make
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1e1
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 77.0
"""
SGLANG = b"# TYPE\nsglang:num_running_reqs 2.0\nsglang:num_queue_reqs 1.0"


RUNNING, WAITING = b"vllm:num_requests_running", b"vllm:num_requests_waiting"


def metrics(running: bytes, waiting: bytes = b" 1.0\n") -> bytes:
    """With `running` after the name of one metric, on the first line, and `waiting` after the other's."""
    return RUNNING + running + WAITING + waiting


@pytest.mark.parametrize(
    ("body", "load"),
    [
        (VLLM, EngineLoad(running=13, waiting=4)),
        (SGLANG, EngineLoad(running=2, waiting=1)),
        (VLLM.replace(b"\n", b"\r\n"), EngineLoad(running=13, waiting=4)),
        (VLLM.replace(b"1e1", b"NaN"), EngineLoad(running=3, waiting=4)),
        (SGLANG.removeprefix(b"# TYPE\n"), EngineLoad(running=2, waiting=1)),
        # What the format allows.
        (metrics(b" 3\n"), EngineLoad(running=3, waiting=1)),
        (metrics(b" 3\n", b" 1"), EngineLoad(running=3, waiting=1)),
        (metrics(b" 3\r\n", b" 1\r\n"), EngineLoad(running=3, waiting=1)),
        (metrics(b"\t 3.0 \t\n"), EngineLoad(running=3, waiting=1)),
        (b" \t" + metrics(b" 3\n\n  "), EngineLoad(running=3, waiting=1)),
        (metrics(b" 3 1395066363000\n", b" 1 -1\n"), EngineLoad(running=3, waiting=1)),
        (metrics(b"{} 3\n"), EngineLoad(running=3, waiting=1)),
        (metrics(b'{engine="0",model_name="m"} 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b'{model_name="m",engine="0"} 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b' { engine = "0" , model_name = "m" , } 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b'{engine="0"}3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b'{m="} 7"} 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b'{m="\\"} 7",n="\\\\"} 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b'{m="\\n\xc3\xa4"} 3\n'), EngineLoad(running=3, waiting=1)),
        (metrics(b" 3e2\n"), EngineLoad(running=300, waiting=1)),
        (metrics(b" 3.5E+02\n"), EngineLoad(running=350, waiting=1)),
        (metrics(b" 30e-1\n"), EngineLoad(running=3, waiting=1)),
        (metrics(b" +3.\n", b" .0\n"), EngineLoad(running=3, waiting=0)),
    ],
)
def test_a_load_is_the_sum_over_an_engine_s_ranks(body: bytes, load: EngineLoad) -> None:
    assert read_load(body) == load


CACHE = (
    b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
    b'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000",x=""} 1.0\n'
)
POOL = b"\nsglang:num_used_tokens 300.0\nsglang:max_total_num_tokens 1000.0\n"


@pytest.mark.parametrize(
    ("body", "free_len"),
    [
        (VLLM, None),
        (VLLM + CACHE, 12_000),
        (VLLM + CACHE + CACHE.replace(b'engine="0"', b'engine="1"'), 24_000),
        (VLLM + CACHE.replace(b"0.25", b"1.5"), 0),
        (VLLM + CACHE.replace(b"0.25", b"NaN"), None),
        (VLLM + CACHE.replace(b'"1000"', b'"None"'), None),
        (VLLM + CACHE.replace(b"block_size", b"block_sizes"), None),
        (VLLM + CACHE.replace(b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc"), None),
        (SGLANG + POOL, 700),
        (SGLANG + POOL.replace(b"300", b"1300"), 0),
        (SGLANG + POOL.replace(b"max_total", b"total"), None),
    ],
)
def test_memory_that_is_left_is_read_where_it_is_reported(
    body: bytes, free_len: int | None
) -> None:
    assert read_load(body).free_len == free_len


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (VLLM + CACHE.replace(b"0.25", b"-0.25"), "vllm:kv_cache_usage_perc is -0.25"),
        (SGLANG + POOL.replace(b"300.0", b"many"), "a sample of sglang:num_used_tokens that is no"),
        (
            VLLM.replace(b"vllm:num_requests_waiting{", b"vllm:of_another{"),
            "no vllm:num_requests_waiting or",
        ),
        (
            b"# HELP\nnot_vllm:num_requests_running 3.0\nnot_vllm:num_requests_waiting 3.0",
            "no vllm",
        ),
        (b"# HELP " + metrics(b" 3\n"), "no vllm:num_requests_running or sglang:num_running_reqs"),
        (b"x" * 70 + b" " * 70 + metrics(b" 3\n"), "no vllm:num_requests_running or"),
        (b"", "no vllm:num_requests_running or sglang:num_running_reqs among its metrics"),
        (VLLM.replace(b"1e1", b"1e.1"), "a sample of vllm:num_requests_running that is no sample"),
        (VLLM.replace(b"1e1", b"1e10"), "vllm:num_requests_running is 1e\\+10"),
        (metrics(b" +Inf\n"), "vllm:num_requests_running is inf"),
        (metrics(b" 3\n", b" -1\n"), "vllm:num_requests_waiting is -1"),
        (metrics(b" NaN\n"), "no vllm:num_requests_running or"),
        (metrics(b" 1_000\n"), "no sample"),
        (metrics(b" 3 x\n"), "no sample"),
        (metrics(b" \n"), "no sample"),
        (metrics(b'{m="} 3\n'), "no sample"),
        (metrics(b'{m="x" 3\n'), "no sample"),
    ],
)
def test_metrics_without_a_load_have_a_reason(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_load(body)


def test_a_line_that_names_a_metric_without_end_is_looked_at_once() -> None:
    """4 MiB of it, and of labels that are never closed: what is done grows with the body alone."""
    with pytest.raises(ValueError, match="no vllm"):
        read_load(b"# " + (RUNNING + b" ") * 160_000)
    with pytest.raises(ValueError, match="no sample"):
        read_load(metrics(b"{" + b'a="' * (1 << 20)))


def observing(dispatcher: Dispatcher, identity_field: str = "vllm") -> LoadMonitor:
    """Of one engine, called w."""
    engine = EngineConnections("http://w")
    settings = make({"identity_field": identity_field}, where="test")
    return LoadMonitor(dispatcher=dispatcher, engine=lambda _: engine, settings=settings)


def test_that_a_load_cannot_be_read_is_said_once_in_each_life(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """First bytes reveal no load for responses in one piece: the operator should know."""
    dispatcher = Dispatcher(
        router=D2LPM(), index=ApproximatePrefixIndex(), rules=QueueRules(), on_ready=lambda _: None
    )
    loads = observing(dispatcher)
    for life in (1, 2):
        dispatcher.engine_up("w")
        worker = dispatcher.engines["w"]
        for problem in ("/metrics answers 404", ""):
            for _ in range(3):
                loads._apply("w", b"", problem)
                assert worker.load_problem == (problem or NONE)
        loads._apply("w", VLLM)
        assert worker.load_problem is None
        warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert len(warned) == life
        assert warned[-1].startswith("engine w: its load cannot be read, /metrics answers 404: ")
        dispatcher.engine_down("w")
        asyncio.run(one_round(loads))


NONE = "no vllm:num_requests_running or sglang:num_running_reqs among its metrics"


PRICES = b"""# TYPE fairhit_price_tokens gauge
fairhit_price_tokens{part="output"} 2.5
fairhit_price_tokens{part="context"} 0.004
fairhit_price_tokens{part="attention"} 1e-05
"""


@pytest.mark.parametrize(
    ("body", "prices"),
    [
        (VLLM, None),
        (VLLM + PRICES, (2.5, 0.004, 1e-05)),
        (PRICES + b'fairhit_price_tokens{rank="1",part="output"} 3.5\n', (3.0, 0.004, 1e-05)),
    ],
)
def test_prices_of_an_engine_with_the_plug_in(body: bytes, prices: object) -> None:
    """Ranks with prices of their own count alike; an engine without the plug-in has none."""
    assert read_prices(body) == prices


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (PRICES.replace(b"2.5", b"-2.5"), "fairhit_price_tokens is -2.5"),
        (PRICES.replace(b"0.004", b"inf"), "fairhit_price_tokens is inf"),
        (PRICES.replace(b"0.004", b"NaN"), "no fairhit_price_tokens of context among its metrics"),
        (PRICES.replace(b"0.004", b"dear"), "a sample of fairhit_price_tokens that is no sample"),
        (PRICES.replace(b"attention", b"other"), "no fairhit_price_tokens of attention among"),
    ],
)
def test_prices_that_are_no_prices_are_refused(body: bytes, problem: str) -> None:
    """A cost out of them would charge one client for another's requests, or overflow."""
    with pytest.raises(ValueError, match="^" + re.escape(problem)):
        read_prices(body)


def test_the_log_says_once_where_the_queues_cost_is_from(caplog: pytest.LogCaptureFixture) -> None:
    """With the first report, with none left, and with wrong ones; the queue has the mean meanwhile."""
    caplog.set_level(logging.INFO)
    dispatcher = Dispatcher(
        router=D2LPM(),
        index=ApproximatePrefixIndex(),
        rules=QueueRules(scheduler="fair"),
        on_ready=lambda _: None,
    )
    loads = observing(dispatcher)
    dispatcher.engine_up("w")
    for body in (VLLM + PRICES, VLLM + PRICES, VLLM, VLLM):
        loads._apply("w", body)
    for _ in range(2):
        loads._apply("w", VLLM + PRICES.replace(b"2.5", b"-2.5"))

    costs = [one.getMessage() for one in caplog.records if "cost" in one.getMessage()]
    assert costs == [
        (
            "cost of the queue: output 2.5, context 0.004, attention 1e-05 tokens, as measured by"
            " engines: 1"
        ),
        "cost of the queue: no engine reports prices; the last ones are kept",
    ]
    warned = [one.getMessage() for one in caplog.records if "prices are not" in one.getMessage()]
    assert warned == ["engine w: its prices are not used, fairhit_price_tokens is -2.5"]
    loads._apply("w", VLLM + PRICES)
    assert dispatcher.queue.prices.mean == (2.5, 0.004, 1e-05)
    dispatcher.engine_down("w")
    asyncio.run(one_round(loads))
    assert dispatcher.queue.prices.mean is None


def test_the_log_says_when_the_engines_prices_changed_noticeably(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most once a minute: each engine fits anew all the time."""
    caplog.set_level(logging.INFO)
    clock = [0.0]
    monkeypatch.setattr("fairhit.gateway.pool.load_monitor.time.monotonic", lambda: clock[0])
    dispatcher = Dispatcher(
        router=D2LPM(),
        index=ApproximatePrefixIndex(),
        rules=QueueRules(scheduler="fair"),
        on_ready=lambda _: None,
    )
    loads = observing(dispatcher)
    dispatcher.engine_up("w")
    prices = ((100.0, b"2.5"), (130.0, b"5.0"), (161.0, b"5.1"), (230.0, b"5.2"))
    for clock[0], price in prices:
        loads._apply("w", VLLM + PRICES.replace(b"2.5", price))

    costs = [one.getMessage()[:29] for one in caplog.records if "cost of" in one.getMessage()]
    assert costs == ["cost of the queue: output 2.5", "cost of the queue: output 5.1"]


CONSUMED = (
    b'fairhit_charged_tokens_total{client="a"} 30.0\n'
    b'fairhit_charged_tokens_total{client="b c"} 1.25e3\n'
    b'fairhit_engine_seconds_total{client="a",pid="1"} 0.5\n'
    b'fairhit_engine_seconds_total{client="a",pid="2"} 0.25\n'
    b'fairhit_engine_seconds_created{client="a"} 17.0\n'
)


def test_what_clients_consumed_is_read_by_name() -> None:
    assert read_consumption(VLLM + CONSUMED) == {"a": (30.0, 0.75), "b c": (1250.0, 0.0)}
    assert read_consumption(VLLM) == {}
    for wrong in (b"NaN", b"-1", b"1e999"):
        with pytest.raises(ValueError, match=r"^fairhit_charged_tokens_total is "):
            read_consumption(CONSUMED.replace(b"30.0", wrong))


def test_what_clients_consumed_is_read_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose queue is here is asked four times a second, and may have a thousand clients."""
    clock = [0.0]
    monkeypatch.setattr("fairhit.gateway.pool.load_monitor.time.monotonic", lambda: clock[0])
    dispatcher = Dispatcher(
        router=D2LPM(),
        index=ApproximatePrefixIndex(),
        rules=QueueRules(),
        on_ready=lambda _: None,
    )
    loads = observing(dispatcher)
    dispatcher.engine_up("w")
    for clock[0], charge in ((100.0, b"30.0"), (101.0, b"90.0"), (105.0, b"80.0")):
        loads._apply(
            "w", VLLM + CONSUMED.replace(b"30.0", charge).replace(b"0.25", b"0.3" + charge[:1])
        )

    assert dispatcher.consumption.share("a") == (1.0, 1.0)
    assert dispatcher.consumption._total.charge == 50.0


def test_where_requests_wait_in_the_engines_only_consumption_is_read(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else of their metrics matters, and an engine without any gives no warning."""
    caplog.set_level(logging.INFO)
    clock = [0.0]
    monkeypatch.setattr("fairhit.gateway.pool.load_monitor.time.monotonic", lambda: clock[0])
    dispatcher = Dispatcher(
        router=D2LPM(), index=ApproximatePrefixIndex(), rules=None, on_ready=lambda _: None
    )
    loads = LoadMonitor(
        dispatcher=dispatcher,
        engine=lambda _: EngineConnections("http://w"),
        settings=make({"queue": "engine"}, where="test"),
    )
    dispatcher.engine_up("w")
    for clock[0], body in (
        (100.0, CONSUMED),
        (106.0, b""),
        (112.0, CONSUMED.replace(b"30.0", b"31.0").replace(b"0.25", b"0.5")),
    ):
        loads._apply("w", body)

    assert dispatcher.consumption.share("a") == (1.0, 1.0)
    assert caplog.messages == []


@pytest.mark.parametrize(("slowness_s", "pause_s"), [(0.03, 0.35), (0.2, 3.75), (0.9, 5.0)])
def test_a_slow_answer_does_not_hide_the_load_for_long(
    slowness_s: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is asked for too much of its time is asked less often, but a busy one not after 25 s."""
    clock = [100.0]

    async def answer_slowly(*_: object, **__: object) -> tuple[int, bytes]:
        clock[0] += slowness_s
        return 200, VLLM

    monkeypatch.setattr("fairhit.gateway.pool.load_monitor.probe.get", answer_slowly)
    dispatcher = Dispatcher(
        router=D2LPM(), index=ApproximatePrefixIndex(), rules=QueueRules(), on_ready=lambda _: None
    )
    loads = observing(dispatcher)
    dispatcher.engine_up("w")

    loads._loop = SimpleNamespace(time=lambda: clock[0])
    life = load_monitor._Life()

    asyncio.run(loads._ask("w", life, begun=clock[0]))

    assert life.due_s == pytest.approx(clock[0] + pause_s)


async def one_round(loads: LoadMonitor) -> None:
    loads.start()
    await asyncio.sleep(0)
    loads.close()


def test_a_load_is_asked_for_over_a_connection_that_is_kept() -> None:
    """Four connections a second to each engine were most of what asking cost."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(b"")
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked[-1] += head
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        engine = EngineConnections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            assert await probe.get(engine, b"/metrics", timeout_s=5, reuses=True) == (200, b"hi")
        assert await probe.get(engine, b"/health", timeout_s=5) == (200, b"hi")
        engine.close()
        server.close()

    asyncio.run(story())

    assert [heads.count(b"GET") for heads in asked] == [3, 1]
    assert [b"close" in heads for heads in asked] == [False, True]


@pytest.mark.parametrize("serves", [True, False])
def test_a_closed_idle_connection_is_no_failure_of_the_engine(
    serves: bool,
) -> None:
    """The request is repeated over a new connection; if that breaks, too, the engine has failed."""
    asked: list[int] = []

    async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(0)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                asked[-1] += 1
                if asked[-1] > 1 or (len(asked) > 1 and not serves):
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(answer_first, "127.0.0.1", 0)
        engine = EngineConnections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await probe.get(engine, b"/metrics", timeout_s=5, reuses=True)
        with nullcontext() if serves else pytest.raises(EngineFailed):
            found = await probe.get(engine, b"/metrics", timeout_s=5, reuses=True)
            assert found == (200, b"hi")
        engine.close()
        server.close()

    asyncio.run(story())

    assert asked == [2, 1]

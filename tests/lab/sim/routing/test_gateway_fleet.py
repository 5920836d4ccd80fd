"""The gateway's queue in the simulator: `--router fleet`."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.lab.simulation.determined import digest
from tests.lab.simulation.traces import SECOND

from fairhit.core.cache.token_runs import Runs
from fairhit.errors import ConfigError
from fairhit_lab.events import Admit, Cancel, Decode, Dispatch, Enqueue, Event, Finish
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange
from fairhit_lab.sim.routing.gateway_fleet import LOAD_INTERVAL_US
from fairhit_lab.traces.trace import TraceRow

MS = 1_000


def row(name: str, at_s: float = 0, *, of: str = "", length: int = 160, **more: Any) -> TraceRow:
    """A request of the client that its name begins with; 16 tokens of the prompt are its own."""
    output_len = more.pop("output_len", 4)
    return TraceRow(
        id=name,
        client=name[0],
        arrival_us=round(at_s * SECOND),
        prompt=Runs([(of or f"prefix of {name[0]}", 0, length - 16), (name, 0, 16)]),
        output_len=output_len,
        max_tokens=output_len,
        **more,
    )


def played(rows: Sequence[TraceRow], **settings: Any) -> tuple[Cluster, list[Event]]:
    """Two engines with passes of 10 ms and 1 ms a prompt token; room for five prompts each."""
    events: list[Event] = []
    chosen = {"router": "fleet", "replicas": 2, "kv_tokens": 1000} | settings
    cluster = Cluster(SimConfig(step_time="linear:0.01,0.001,0", **chosen), rows, [events.append])
    cluster.run()
    return cluster, events


def of(events: Sequence[Event], kind: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_lone_request_is_decided_sent_and_seen_to_end() -> None:
    cluster, events = played([row("a1", 1)], decision_us=2 * MS, transit_us=5 * MS)

    (dispatch,), (enqueue,) = of(events, Dispatch), of(events, Enqueue)
    assert (dispatch.t_us, dispatch.worker) == (SECOND, None)
    assert enqueue.t_us == SECOND + 7 * MS
    assert len(of(events, Finish)) == 1
    assert cluster.fleet is not None
    # The dispatcher knows: nothing is in flight.
    assert all(not engine.tickets for engine in cluster.fleet.dispatcher.engines.values())


def test_decisions_are_made_one_after_the_other() -> None:
    cluster, events = played([row(f"a{n}") for n in range(4)], decision_us=2 * MS, transit_us=0)

    assert [event.t_us for event in of(events, Enqueue)] == [2 * MS, 4 * MS, 6 * MS, 8 * MS]
    assert cluster.fleet is not None
    assert (cluster.fleet.decisions, cluster.fleet.delayed_us) == (4, 20 * MS)


def test_requests_with_one_prefix_meet_at_one_engine() -> None:
    """The gateway sees the first block events only after its first sends; later ones follow the cache."""
    rows = [row(f"{client}{n}", n) for n in range(6) for client in "ab"]
    _, events = played(rows)

    engines = {
        client: {event.worker for event in of(events, Admit) if event.client == client}
        for client in "ab"
    }
    assert len(engines["a"]) == len(engines["b"]) == 1
    assert engines["a"] != engines["b"]


@pytest.mark.parametrize("host", ["ideal", "vllm", "sglang"])
@pytest.mark.parametrize("scheduler", ["dlpm", "fair"])
def test_a_flood_does_not_starve_a_light_client_before_stock_engines(
    host: str, scheduler: str
) -> None:
    """200 requests of a at once, then b's, one a second: with first come first served b waits for all."""
    flood = [row(f"a{n}", of=f"a {n}", length=320) for n in range(200)]
    light = [row(f"b{n}", 4 + n, of=f"b {n}", length=320) for n in range(6)]

    def slowest(name: str) -> float:
        _, events = played([*flood, *light], host=host, scheduler=name, kv_tokens=2000)
        sent = {event.request: event.t_us for event in of(events, Dispatch)}
        ends = of(events, Finish)
        assert len(ends) == len(flood) + len(light)
        return max((e.t_us - sent[e.request]) / SECOND for e in ends if e.client == "b")

    assert slowest(scheduler) < slowest("fcfs") / 2


def test_requests_wait_at_the_gateway_and_not_in_the_engines() -> None:
    """Once the capacity is learnt, few requests are left in an engine's queue after it has admitted some."""
    rows = [row(f"a{n}", of=f"a {n}", length=160, output_len=20) for n in range(300)]
    cluster, events = played(rows)

    waiting, left = Counter[int](), list[int]()
    for event, after in pairwise(events):
        if isinstance(event, Enqueue):
            waiting[event.worker] += 1
        elif isinstance(event, Admit):
            waiting[event.worker] -= 1
            if not isinstance(after, Admit) and event.t_us > cluster.kernel.now_us // 2:
                left.append(waiting[event.worker])
    assert left and max(left) <= 2


def test_where_memory_is_reported_no_prompt_waits_for_it_in_an_engine() -> None:
    """Long and short prompts, five or fifty of which fit: most long ones wait in the engine otherwise."""
    rows = [
        row(f"{'ab'[n % 2]}{n}", n / 50, of=f"{n}", length=(176, 32)[n % 2], output_len=20)
        for n in range(300)
    ]

    def waited_s(reports: str) -> float:
        _, events = played(rows, scheduler="dlpm", engine_reports=reports)
        sent = {event.request: event.t_us for event in of(events, Enqueue)}
        return sum(e.t_us - sent[e.request] for e in of(events, Admit)) / len(rows) / SECOND

    assert waited_s("memory") < waited_s("load") / 2


def test_a_failed_engine_loses_no_request() -> None:
    changes = (
        WorkerChange(time_us=2 * SECOND, worker=1, up=False),
        WorkerChange(time_us=9 * SECOND, worker=1, up=True),
    )
    rows = [row(f"{'ab'[n % 2]}{n}", n / 20, of=f"{n % 7}") for n in range(200)]
    cluster, events = played(rows, changes=changes, transit_us=50 * MS)

    assert sorted(e.request for e in of(events, Finish)) == sorted(each.id for each in rows)
    joined = [e for e in of(events, Admit) if e.worker == 1 and e.t_us > 9 * SECOND]
    assert joined, "nothing was sent to the engine that came back"
    assert cluster.fleet is not None
    assert all(not engine.tickets for engine in cluster.fleet.dispatcher.engines.values())


@pytest.mark.parametrize("cancel_s", [0.001, 0.02, 0.2, 3], ids=["sent", "runs", "waits", "late"])
def test_a_caller_may_leave_at_any_time(cancel_s: float) -> None:
    """On its way to the engine, in the engine, or while it waits: it ends once, and nothing is left."""
    rows = [
        row(f"a{n}", of=f"a {n}", output_len=50, cancel_us=round((cancel_s + n / 1000) * SECOND))
        for n in range(30)
    ]
    cluster, events = played(rows, transit_us=10 * MS)

    ends = of(events, (Cancel, Finish))
    assert sorted(event.request for event in ends) == sorted(each.id for each in rows)
    assert of(events, Cancel)
    assert cluster.fleet is not None
    dispatcher = cluster.fleet.dispatcher
    assert all(not engine.tickets for engine in dispatcher.engines.values())
    assert not dispatcher.queue.lanes.clients()


def test_late_cache_events_cost_hits() -> None:
    """Engines evict while the gateway does not know yet, so that it sends to the wrong one."""
    rows = [row(f"{client}{n}", n / 8) for n in range(40) for client in "abcdefgh"]

    def computed(delay_us: int) -> int:
        _, events = played(rows, event_delay_us=delay_us, kv_tokens=600)
        return sum(event.extend_len for event in of(events, Admit))

    assert computed(0) < computed(5 * SECOND)


def test_outputs_are_reported_while_they_are_streamed() -> None:
    """A client with one endless answer has debts before its end: the load is read four times a second."""
    cluster = Cluster(
        SimConfig(step_time="linear:0.01,0.001,0", router="fleet", kv_tokens=9000),
        [row("a1", output_len=3000), row("b1", 20)],
    )
    assert cluster.fleet is not None
    reported: list[int] = []
    emitted = cluster.fleet.dispatcher.emitted

    def noting(ticket: Any, count: int) -> None:
        if ticket.request.id == "a1":
            reported.append(count)
        emitted(ticket, count)

    cluster.fleet.dispatcher.emitted = noting  # type: ignore[method-assign]
    cluster.run()

    assert len(reported) > 3000 * 10 * MS // LOAD_INTERVAL_US - 5
    assert reported == sorted(reported)


@pytest.mark.parametrize("host", ["ideal", "vllm", "sglang"])
def test_equal_seeds_give_equal_bytes(host: str) -> None:
    given = {"router": "fleet", "host": host, "count": 80, "kv_tokens": 900}

    assert digest("fair", **given) == digest("fair", **given)
    assert digest("fair", **given) != digest("fair", **given, transit_us=90 * MS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"worker_quantum": 5}, "worker-quantum: router fleet has no such setting"),
        ({"max_overtake": 5}, "max-overtake: the queue of router fleet has no such setting"),
        ({"scheduler": "las"}, "scheduler: expected one of .*, got 'las'"),
        ({"scheduler": "fcfs", "quantum": 5}, "quantum: .*"),
    ],
)
def test_settings_that_the_gateway_has_not_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        played([row("a1")], **settings)


def test_every_pass_is_reported() -> None:
    """First outputs are seen when they are made, so like passes are not run as one."""
    _, events = played([row("a1", output_len=9)])

    assert all(event.passes == 1 for event in of(events, Decode))

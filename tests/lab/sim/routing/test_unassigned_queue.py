"""central-dlpm in the simulator: requests stay unassigned on arrival, and asking takes time."""

from collections.abc import Sequence
from typing import Any

import pytest

from fairhit.core.cache.token_runs import Runs
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.errors import ConfigError
from fairhit_lab.baselines.central_dlpm import CentralDLPM, DeltaTraffic
from fairhit_lab.events import Admit, Cancel, Dispatch, Enqueue, Event, Finish, Preempt
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange
from fairhit_lab.traces.trace import TraceRow


def row(
    name: str, at_s: float = 0, *, length: int = 20, output_len: int = 2, cancel_s: float = 0
) -> TraceRow:
    return TraceRow(
        id=name,
        client="a",
        arrival_us=round(at_s * 1e6),
        prompt=Runs([(f"prompt of {name}", 0, length)]),
        output_len=output_len,
        max_tokens=output_len,
        cancel_us=round(cancel_s * 1e6) or None,
    )


def played(*rows: TraceRow, **settings: Any) -> tuple[Cluster, list[Event]]:
    """Two workers with room for one of the prompts each, a second a step."""
    events: list[Event] = []
    chosen = {"router": "central-dlpm", "replicas": 2, "kv_tokens": 30} | settings
    cluster = Cluster(SimConfig(step_time="linear:1,0,0", **chosen), rows, [events.append])
    cluster.run()
    return cluster, events


def of(events: list[Event], kind: type[Any]) -> Sequence[Any]:
    return [event for event in events if isinstance(event, kind)]


def traffic(cluster: Cluster) -> DeltaTraffic:
    assert cluster.unassigned is not None
    assert isinstance(cluster.unassigned.central, CentralDLPM)
    return cluster.unassigned.central.traffic


def spent(cluster: Cluster, client: str) -> int:
    """In tokens; there was one refill, of the 4096 tokens of the quantum."""
    assert cluster.unassigned is not None
    central = cluster.unassigned.central
    assert isinstance(central, CentralDLPM) and central.rounds == 1
    return 4096 - central.credit(client) // UNITS_PER_TOKEN


def test_the_first_worker_with_free_capacity_takes_the_next_request() -> None:
    """A long answer occupies one worker; the other takes all that follows, though its load was the same."""
    rows = [row("long", output_len=9), *(row(f"r{n}", 0.5) for n in range(3))]
    _, events = played(*rows)

    taken = {event.request: event.worker for event in of(events, Admit)}
    assert taken == {"long": 0, "r0": 1, "r1": 1, "r2": 1}


def test_a_dispatch_is_reported_on_arrival_and_a_worker_at_admission() -> None:
    _, events = played(row("x", output_len=5), row("y", output_len=5), row("z", 1.5))

    (dispatch,) = [event for event in of(events, Dispatch) if event.request == "z"]
    (enqueue,) = [event for event in of(events, Enqueue) if event.request == "z"]
    (admit,) = [event for event in of(events, Admit) if event.request == "z"]
    assert (dispatch.t_us, dispatch.worker) == (1_500_000, None)
    assert (enqueue.t_us, enqueue.worker) == (admit.t_us, admit.worker)
    assert len(of(events, Enqueue)) == len(of(events, Finish)) == 3


def test_the_time_blocked_is_added_to_the_pass() -> None:
    """200 us there and back and 100 us of work; a worker that asks at the same time waits for both."""
    cluster, events = played(row("x"), row("y"))

    assert [event.t_us for event in of(events, Finish)] == [2_000_300, 2_000_400]
    assert traffic(cluster).blocked_us == 300 + 400


def test_what_is_sent_is_counted() -> None:
    """
    Every prompt of 20 tokens is an answer; the change of the tree by the first is sent when the worker
    asks again: 20 tokens more. Messages have 24 bytes, changes 12, tokens 4.
    """
    cluster, _ = played(row("x"), row("y", 10), replicas=1)
    spent = traffic(cluster)

    assert (spent.passes, spent.changes) == (2, 1)
    assert spent.delta_bytes == 2 * 24 + 12 + 20 * 4
    assert spent.answer_bytes == 2 * 24 + 2 * 20 * 4


def test_who_leaves_while_waiting_is_nowhere() -> None:
    rows = [row("x", output_len=5), row("y", output_len=5), row("gone", 0.5, cancel_s=2)]
    _, events = played(*rows)

    assert of(events, Cancel) == [Cancel(2_000_000, None, "gone", "a")]
    assert [event.request for event in of(events, Admit)] == ["x", "y"]


def test_a_lost_workers_requests_are_taken_by_others_and_a_new_one_takes_what_waits() -> None:
    changes = (
        WorkerChange(time_us=1_500_000, worker=0, up=False),
        WorkerChange(time_us=2_500_000, worker=2, up=True),
    )
    _, events = played(*[row(name, output_len=5) for name in ("x", "y", "z")], changes=changes)

    assert [event.request for event in of(events, Preempt)] == ["x"]
    assert sorted(event.request for event in of(events, Finish)) == ["x", "y", "z"]
    assert {event.worker for event in of(events, Admit) if event.t_us > 2_000_000} == {1, 2}


@pytest.mark.parametrize(
    ("fails_s", "cancel_s", "paid"),
    [
        (3.5, 0, 20 + 2 * 9),  # it has had 3 outputs, and has all 9 at the other
        (6.5, 9, 20 + 2 * 6),  # it has had 6, and no more than that at the other
        (6.5, 6.5, 20 + 2 * 6),  # it is at no other
    ],
)
def test_what_a_lost_worker_served_is_paid_once(fails_s: float, cancel_s: float, paid: int) -> None:
    """The outputs since anybody looked are paid, and at the next worker only what is beyond them."""
    changes = (WorkerChange(time_us=round(fails_s * 1e6), worker=0, up=False),)
    cluster, events = played(row("x", output_len=9, cancel_s=cancel_s), changes=changes)

    assert [event.worker for event in of(events, Preempt)] == [0]
    assert spent(cluster, "a") == paid


def test_it_is_paid_once_however_often_its_worker_is_lost() -> None:
    """Six outputs, then two, then all nine; in between there is no worker at all."""
    at = ((6.5, 0, False), (10, 0, True), (12.5, 0, False), (20, 0, True))
    changes = tuple(WorkerChange(time_us=round(s * 1e6), worker=w, up=up) for s, w, up in at)
    cluster, events = played(row("x", output_len=9), replicas=1, changes=changes)

    assert len(of(events, Admit)) == 3
    assert spent(cluster, "a") == 20 + 2 * 9


def test_everyone_may_be_gone_for_a_while() -> None:
    changes = (
        WorkerChange(time_us=500_000, worker=0, up=False),
        WorkerChange(time_us=5_000_000, worker=0, up=True),
    )
    _, events = played(row("x"), row("y", 1), replicas=1, changes=changes)

    assert sorted(event.request for event in of(events, Finish)) == ["x", "y"]


def test_a_request_dispatched_again_is_queued_before_the_first_pass_of_a_new_worker() -> None:
    """
    Capacity is one request. x arrived first and ran, y waits in the queue; with no worker left, x is put
    back only when a worker is added, before the first scheduling pass of that worker.
    """
    changes = (
        WorkerChange(time_us=500_000, worker=0, up=False),
        WorkerChange(time_us=5_000_000, worker=0, up=True),
    )
    _, events = played(row("x"), row("y", 0.2), replicas=1, changes=changes)

    admitted = [event.request for event in of(events, Admit) if event.t_us == 5_000_000]
    assert admitted == ["x"]


def test_it_is_the_scheduler_and_has_its_own_settings() -> None:
    with pytest.raises(ConfigError, match="it is the scheduler, and that is dlpm, got 'vtc'"):
        played(row("x"), scheduler="vtc")
    with pytest.raises(ConfigError, match="min-match: router central-dlpm has no such setting"):
        played(row("x"), min_match=3)

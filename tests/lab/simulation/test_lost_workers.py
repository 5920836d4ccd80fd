"""What is counted, and that no request is lost, when workers are lost."""

from collections import Counter

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.lab.simulation.traces import CAPACITY, SECOND, of, row, simulate, traces

from fairhit_lab.events import Admit, Cancel, Decode, Finish, Preempt, Reject
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange


def test_a_prompt_that_a_failed_worker_had_is_in_its_clients_service_once():
    """
    Worker 1 has both requests' prefix when it gets what worker 0 had.
    """
    rows = [row("1", prompt="A5", output_len=5), row("2", prompt="A7", at=1, output_len=5)]
    fails = (WorkerChange(time_us=2 * SECOND, worker=0, up=False),)
    events = simulate(rows, replicas=2, router="round-robin", changes=fails)
    counted = Summary()
    for event in events:
        counted(event)
    clients = counted.as_dict()["clients"]

    assert [(e.worker, e.extend_len, e.again) for e in of(Admit, events)] == [
        (0, 5, False),
        (1, 7, False),
        (1, 1, True),
    ]
    assert [clients[name]["tokens"]["input"] for name in "12"] == [5, 7]
    assert [clients[name]["recomputed_tokens"] for name in "12"] == [1, 0]


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(rows=traces(), fails=st.lists(st.integers(0, 120), min_size=2, max_size=2))
def test_where_no_worker_comes_back_each_request_ended_or_is_alive(rows, fails):
    """And each output was of a request's stay at a worker: a request there emits one in each pass."""
    changes = tuple(
        WorkerChange(time_us=at * SECOND // 4, worker=number, up=False)
        for number, at in enumerate(fails)
    )
    events = []
    config = SimConfig(
        step_time="linear:1,0,0", kv_tokens=CAPACITY, replicas=2, router="d2lpm", changes=changes
    )
    cluster = Cluster(config, rows, [events.append])
    cluster.run()

    ended = [event.request for event in of((Finish, Cancel, Reject), events)]
    left = [each.id for each in cluster.intake.alive()]
    assert sorted(ended + left) == sorted(each.id for each in rows)
    reported, emitted, running = Counter(), Counter(), {}
    for event in events:
        if isinstance(event, Admit):
            running[event.request] = event
        elif isinstance(event, (Preempt, Finish, Cancel)):
            running.pop(event.request, None)
        elif isinstance(event, Decode):
            reported.update({client: event.passes * n for client, n in event.counts.items()})
            here = [each.client for each in running.values() if each.worker == event.worker]
            emitted.update(here * event.passes)
    assert reported == emitted

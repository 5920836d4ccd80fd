"""A cluster in virtual time: programs, callers that leave, workers that fail and join, rate limits."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.lab.simulation.determined import scheduler_with
from tests.lab.simulation.traces import CAPACITY, SECOND, described, of, row, simulate, traces

from fairhit.errors import ConfigError
from fairhit_lab.baselines import ALL_ROUTERS, CENTRAL_ROUTERS, FLEET
from fairhit_lab.events import (
    Admit,
    Cancel,
    Dispatch,
    Finish,
    FirstToken,
    Preempt,
    Reject,
    WorkerUpOrDown,
)
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange


def times(kind, events):
    """When what happened to whom."""
    return [(event.request, event.t_us / SECOND) for event in of(kind, events)]


# -- programs


def test_a_child_starts_when_its_last_parent_has_finished():
    """
    3 waits for 1 and 2; 4 may start then but arrives later.
    """
    rows = [
        row("1", output_len=2),
        row("2", output_len=5),
        row("3", after=("1", "2")),
        row("4", at=9, after=("1",)),
    ]

    assert times(Dispatch, simulate(rows)) == [("1", 0), ("2", 0), ("3", 5), ("4", 9)]


def test_a_child_takes_its_place_in_the_queue_when_it_starts():
    """
    One at a time. 2 stands second in the trace but starts as 1 finishes, after 3 and 4 have come.
    """
    rows = [
        row("1", output_len=3),
        row("2", after=("1",)),
        row("3", at=1, output_len=5),
        row("4", at=2),
    ]
    events = simulate(rows, scheduler="fcfs", max_running=1)

    assert times(Admit, events) == [("1", 0), ("3", 3), ("4", 8), ("2", 10)]


def test_who_starts_at_one_instant_comes_in_the_order_of_the_trace():
    """
    At 3, as 1 finishes, 2 and 4 are free to start, and 3 and 5 arrive.
    """
    rows = [
        row("1", output_len=3),
        row("2", after=("1",)),
        row("4", after=("1",)),
        row("3", at=3),
        row("5", at=3),
    ]
    events = simulate(rows, scheduler="fcfs", max_running=1)

    assert [name for name, _ in times(Admit, events)] == ["1", "2", "4", "3", "5"]


def test_a_request_arrives_when_it_starts_and_keeps_that_where_it_is_sent_again():
    """
    2 waits for 1 until 2, and 3 comes at 3. At 4 the worker fails; at 5 it is back.
    """
    rows = [row("1"), row("2", after=("1",), output_len=9), row("3", at=3, output_len=9)]
    fails = WorkerChange(time_us=4 * SECOND, worker=0, up=False)
    joins = WorkerChange(time_us=5 * SECOND, worker=0, up=True)
    config = SimConfig(step_time="linear:1,0,0", kv_tokens=CAPACITY, changes=(fails, joins))
    cluster = Cluster(config, rows)
    send, seen = cluster.send, []

    def seeing(ticket):
        request = ticket.request
        seen.append((request.id, request.order, request.arrival_us // SECOND))
        send(ticket)

    cluster.send = seeing
    cluster.run()

    again = [("2", 1, 2), ("3", 2, 3)]
    assert seen == [("1", 0, 0), *again, *again, *again]


def test_a_long_chain_whose_first_is_cancelled_is_rejected():
    """
    Longer than the interpreter would call itself.
    """
    rows = [row("0", output_len=9, cancel_us=2 * SECOND)]
    rows += [row(str(n), after=(str(n - 1),)) for n in range(1, 3000)]
    events = simulate(rows)

    assert [event.request for event in of(Reject, events)] == [str(n) for n in range(1, 3000)]


def test_children_of_the_rejected_and_the_cancelled_are_rejected():
    """
    1 is too large and 2 is cancelled while 4 and its child wait for them.
    """
    rows = [
        row("1", prompt="A60"),
        row("2", output_len=20, cancel_us=3 * SECOND),
        row("3", after=("1",)),
        row("4", after=("2",)),
        row("5", after=("4",)),
        row("6", at=9, after=("5",)),
    ]
    rejected = {event.request: event.reason for event in of(Reject, simulate(rows))}

    assert rejected == {
        "1": "too-large",
        "3": "parent",
        "4": "parent",
        "5": "parent",
        "6": "parent",
    }


# -- callers that leave


def test_a_running_request_is_cancelled_at_the_end_of_its_pass():
    events = simulate([row("1", output_len=9, cancel_us=2 * SECOND + SECOND // 2)])

    assert times(Cancel, events) == [("1", 3)]
    assert not of(Finish, events)


def test_at_the_very_end_of_a_pass_it_leaves_at_once():
    assert times(Cancel, simulate([row("1", output_len=9, cancel_us=3 * SECOND)])) == [("1", 3)]


def test_a_waiting_request_is_cancelled_at_once():
    rows = [row("1", output_len=4), row("2", cancel_us=SECOND // 2)]

    assert times(Cancel, simulate(rows, max_running=1)) == [("2", 0.5)]


def test_a_request_whose_parent_runs_is_cancelled_without_a_worker():
    rows = [row("1", output_len=4), row("2", after=("1",), cancel_us=SECOND)]
    [cancelled] = of(Cancel, simulate(rows))

    assert (cancelled.request, cancelled.worker) == ("2", None)


def test_a_request_that_finishes_first_is_not_cancelled():
    events = simulate([row("1", output_len=2, cancel_us=2 * SECOND)])

    assert described(events)[-1] == "finish 1 @2"


# -- rate limits


@pytest.mark.parametrize(
    ("mode", "starts"),
    [("reject", [("1", 0), ("2", 1)]), ("delay", [("1", 0), ("2", 1), ("3", 10)])],
)
def test_a_rate_limit_rejects_or_delays(mode, starts):
    """
    Two requests of a client in ten seconds.
    """
    rows = [row(name, client="a", at=at) for name, at in (("1", 0), ("2", 1), ("3", 2))]
    given = {"scheduler": "rpm", "rpm_limit": 2, "rpm_window_us": 10 * SECOND, "rpm_mode": mode}

    assert times(Dispatch, simulate(rows, **given)) == starts


def test_a_delayed_request_can_be_cancelled():
    rows = [row("1", client="a"), row("2", client="a", cancel_us=4 * SECOND)]
    given = {"rpm_limit": 1, "rpm_window_us": 10 * SECOND, "rpm_mode": "delay"}
    events = simulate(rows, scheduler="rpm", **given)

    assert times(Cancel, events) == [("2", 4)] and times(Dispatch, events) == [("1", 0)]


# -- workers


def test_what_a_failed_worker_had_starts_anew_elsewhere():
    """
    1 has had two of its tokens at worker 0 when that fails; it gets all five at worker 1.
    """
    rows = [row("1", output_len=5)]
    fails = (WorkerChange(time_us=2 * SECOND, worker=0, up=False),)
    events = simulate(rows, replicas=2, router="round-robin", changes=fails)

    assert [(e.worker, e.t_us // SECOND) for e in of(Dispatch, events)] == [(0, 0), (1, 2)]
    assert [(e.worker, e.t_us // SECOND) for e in of(Preempt, events)] == [(0, 2)]
    [finish] = of(Finish, events)
    assert (finish.worker, finish.t_us // SECOND, finish.output_len) == (1, 7, 5)
    assert len(of(FirstToken, events)) == 1


def test_without_a_worker_requests_wait_for_one():
    """
    2 is cancelled meanwhile, and never sent.
    """
    rows = [row("1", at=2), row("2", at=2, cancel_us=4 * SECOND)]
    changes = (
        WorkerChange(time_us=SECOND, worker=0, up=False),
        WorkerChange(time_us=9 * SECOND, worker=1, up=True),
    )
    events = simulate(rows, changes=changes)

    assert times(Dispatch, events) == [("1", 9)]
    assert [(e.worker, e.up) for e in of(WorkerUpOrDown, events)] == [(0, False), (1, True)]
    assert times(Cancel, events) == [("2", 4)]


@pytest.mark.parametrize(
    "chosen",
    [
        *((router, "ideal") for router in (*ALL_ROUTERS, *CENTRAL_ROUTERS)),
        *((router, "sglang") for router in ("d2lpm", *CENTRAL_ROUTERS)),
        ("d2lpm", "vllm"),
        *((FLEET, host) for host in ("ideal", "vllm", "sglang")),
    ],
)
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    rows=traces(),
    fails=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 160)), max_size=3, unique_by=lambda f: f[0]
    ),
    down=st.integers(1, 40),
    event_delay_us=st.sampled_from([0, SECOND // 3]),
)
def test_nothing_is_lost_and_nothing_is_served_twice(chosen, rows, fails, down, **given):
    """Every request ends exactly once, and one that finishes has had all its tokens at one worker."""
    given["router"], given["host"] = chosen
    given["scheduler"] = scheduler_with(chosen[0])
    changes = [WorkerChange(time_us=at * SECOND // 4, worker=w, up=False) for w, at in fails]
    changes += [
        WorkerChange(time_us=(at + down) * SECOND // 4, worker=w, up=True) for w, at in fails
    ]
    events = simulate(rows, replicas=3, changes=tuple(changes), **given)

    ends = [event.request for event in of((Finish, Cancel, Reject), events)]
    assert sorted(ends) == sorted(each.id for each in rows)
    wanted = {each.id: each.output_len for each in rows}
    at = {}
    for event in events:
        if isinstance(event, Admit):
            assert event.request not in at, "admitted while it runs"
            at[event.request] = event.worker
        elif isinstance(event, Preempt):
            at.pop(event.request, None)
        elif isinstance(event, Finish):
            assert at.pop(event.request) == event.worker
            assert event.output_len == wanted[event.request]


@pytest.mark.parametrize("router", CENTRAL_ROUTERS)
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(rows=traces(), fails=st.integers(0, 160), down=st.integers(1, 40))
def test_no_worker_idles_while_something_waits_in_the_queue_of_all(router, rows, fails, down):
    """What waits for any worker is work for each that is up; by all its events, none left it there."""
    changes = tuple(
        WorkerChange(time_us=at * SECOND // 4, worker=1, up=up)
        for at, up in ((fails, False), (fails + down, True))
    )
    summary = Summary(one_queue=2)
    for event in simulate(
        rows, replicas=2, router=router, scheduler=scheduler_with(router), changes=changes
    ):
        summary(event)

    assert summary.as_dict()["idle_with_work_s"]["total"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(5, 1, False)], "--fail 1@5: worker 1 is not up then"),
        ([(5, 0, True)], "--join 0@5: worker 0 is up then"),
        ([(5, 0, False), (9, 0, False)], "--fail 0@9: worker 0 is not up then"),
    ],
)
def test_only_what_is_up_can_fail(changes, message):
    given = tuple(WorkerChange(time_us=at * SECOND, worker=w, up=up) for at, w, up in changes)

    with pytest.raises(ConfigError, match=f"^{message}$"):
        SimConfig(changes=given)


def test_a_weight_in_a_row_counts_unless_a_flag_says_otherwise():
    rows = [row("1", client="a", weight=3 * SECOND), row("2", client="b", weight=3 * SECOND)]
    cluster = Cluster(
        SimConfig(step_time="linear:1,0,0", kv_tokens=CAPACITY, weights={"b": 2}), rows
    )
    cluster.run()

    assert [cluster.weights.of(client) for client in "abc"] == [3 * SECOND, 2 * SECOND, SECOND]


def test_a_trace_is_read_as_its_time_comes():
    """
    A trace may be larger than memory: one row is read ahead, no more.
    """
    read = []

    def rows():
        for number in range(50):
            read.append(number)
            yield row(str(number), at=10 * number)

    ahead = []
    cluster = Cluster(
        SimConfig(step_time="linear:1,0,0", kv_tokens=CAPACITY),
        rows(),
        [lambda event: ahead.append(len(read) - 1 - event.t_us // (10 * SECOND))],
    )
    cluster.run()

    assert max(ahead) == 1
    assert len(cluster.intake) == 0

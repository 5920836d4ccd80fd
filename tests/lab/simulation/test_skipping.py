"""Skipping like passes in closed form changes nothing: the same events, the same summary."""

from inspect import signature

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.lab.simulation.traces import CAPACITY, SECOND, of, one_by_one, row, simulate, traces

from fairhit.core.costs import parse_cost
from fairhit.core.service import Weights
from fairhit_lab.baselines import ALL_SCHEDULERS
from fairhit_lab.events import Admit, Decode
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange

some = settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
# Passes that never end on the same instant as arrivals, and such that often do.
step_times = st.sampled_from(["linear:1,0,0", "linear:0.25,0.01,0.0333333", "a10g:llama-3.2-3b"])


def summary_of(rows, **given):
    """The summary, and how many passes left a request untried."""
    weights = Weights(given.get("weights"))
    summary = Summary(weight_of=weights.of)
    cluster = Cluster(SimConfig(**given), rows, [summary], weights=weights, on_start=summary.start)
    cluster.run()
    truncated = [replica.host.scheduler.truncated_passes for replica in cluster.replicas]
    return summary.as_dict(), truncated


@pytest.mark.parametrize("scheduler", ALL_SCHEDULERS)
@some
@given(
    rows=traces(),
    step_time=step_times,
    max_running=st.sampled_from([1, 3, 64]),
    misfit=st.sampled_from([None, "stop", "skip"]),
    max_misfits=st.sampled_from([None, 1, 3]),
    replicas=st.sampled_from([1, 3]),
    weighted=st.booleans(),
)
def test_skipping_tells_what_stepping_tells(scheduler, rows, weighted, **given):
    """With arrivals and cancellations in the middle of runs, on one replica and on several."""
    given |= {"scheduler": scheduler, "kv_tokens": CAPACITY, "router": "least-loaded"}
    given["weights"] = {"a": 3, "b": "0.7"} if weighted else {}

    skipped = simulate(rows, **given)
    stepped = simulate(rows, skips=False, **given)

    assert one_by_one(skipped) == one_by_one(stepped)
    assert summary_of(rows, **given) == summary_of(rows, skips=False, **given)


@pytest.mark.parametrize("scheduler", ALL_SCHEDULERS)
@some
@given(
    rows=traces(max_s=8),
    step_time=step_times,
    replicas=st.sampled_from([1, 2]),
    router=st.sampled_from(["least-loaded", "d2lpm"]),
    event_delay_us=st.sampled_from([0, SECOND // 3, 2 * SECOND]),
    inbatch=st.sampled_from(["share", "compute"]),
    own=st.fixed_dictionaries(
        {
            "quantum": st.sampled_from([1, 17, 60, 400]),
            "charge": st.sampled_from([None, "extend", "input"]),
            "max_overtake": st.sampled_from([None, 0, 20]),
            "fallback": st.sampled_from([None, 0, 3]),
        }
    ),
)
def test_skipping_tells_what_stepping_tells_under_any_setting(scheduler, rows, own, **given):
    """Of the scheduler's own settings those that it has, and a router that is notified of caches late."""
    has = signature(ALL_SCHEDULERS[scheduler]).parameters
    given |= {name: value for name, value in own.items() if name in has}
    given |= {"scheduler": scheduler, "kv_tokens": CAPACITY}

    skipped = simulate(rows, **given)
    stepped = simulate(rows, skips=False, **given)

    assert one_by_one(skipped) == one_by_one(stepped)
    assert summary_of(rows, **given) == summary_of(rows, skips=False, **given)


@settings(some, max_examples=200)
@given(
    rows=st.sampled_from(["a", "ab", "abc"]).flatmap(
        lambda clients: traces(clients=clients, min_size=12, max_s=2)
    ),
    step_time=step_times,
    kv_tokens=st.integers(48, 90),
    quantum=st.integers(1, 60),
    max_overtake=st.sampled_from([None, 0, 20]),
    misfit=st.sampled_from([None, "stop"]),
    max_misfits=st.sampled_from([None, 1, 2, 5]),
    cost=st.sampled_from(["linear:1,2", "linear:1,0.7", "linear:1,0", "profiled"]),
    inbatch=st.sampled_from(["share", "compute"]),
    weighted=st.booleans(),
)
def test_skipping_tells_what_stepping_tells_while_memory_is_short(rows, cost, weighted, **given):
    """
    Many requests wait that do not fit, and how many passes admit none depends on the deficits.
    """
    given["cost"] = parse_cost(cost)
    given["weights"] = {"a": 3, "b": "0.7"} if weighted else {}

    skipped = simulate(rows, **given)
    stepped = simulate(rows, skips=False, **given)

    assert one_by_one(skipped) == one_by_one(stepped)
    given = {"kv_tokens": CAPACITY, **given}
    assert summary_of(rows, **given) == summary_of(rows, skips=False, **given)


@pytest.mark.parametrize(
    "scheduler", ["fcfs", "lpm", "vtc", "vtc-noisy", "drr", "dlpm-predict", "fair"]
)
@settings(some, max_examples=100)
@given(
    rows=traces(clients="abc", min_size=20, max_s=8),
    step_time=step_times,
    kv_tokens=st.integers(48, 70),
    quantum=st.sampled_from([1, 17, 60]),
    misfit=st.sampled_from([None, "stop", "skip"]),
    max_misfits=st.sampled_from([None, 1, 3]),
    cost=st.sampled_from(["linear:1,2", "linear:1,0.7", "linear:0,2", "linear:1,0", "profiled"]),
    weighted=st.booleans(),
)
def test_skipping_tells_what_stepping_tells_under_other_policies_while_memory_is_short(
    scheduler, rows, quantum, cost, weighted, **given
):
    """
    How many passes admit nothing depends on what each policy proposes.
    """
    has = signature(ALL_SCHEDULERS[scheduler]).parameters
    own = {"quantum": quantum, "cost": parse_cost(cost)}
    given |= {name: value for name, value in own.items() if name in has}
    given |= {"scheduler": scheduler, "router": "least-loaded"}
    given["weights"] = {"a": 3, "b": "0.7"} if weighted else {}

    skipped = simulate(rows, **given)
    stepped = simulate(rows, skips=False, **given)

    assert one_by_one(skipped) == one_by_one(stepped)
    assert summary_of(rows, **given) == summary_of(rows, skips=False, **given)


@some
@given(rows=traces(), fails=st.integers(0, 80), joins=st.integers(1, 40))
def test_skipping_tells_what_stepping_tells_when_a_worker_fails(rows, fails, joins):
    changes = (
        WorkerChange(time_us=fails * SECOND // 4, worker=0, up=False),
        WorkerChange(time_us=(fails + joins) * SECOND // 4, worker=0, up=True),
    )
    given = {"replicas": 2, "changes": changes, "router": "least-loaded"}

    assert one_by_one(simulate(rows, **given)) == one_by_one(simulate(rows, skips=False, **given))


def test_a_run_of_like_passes_is_one_event():
    """
    Otherwise the tests above would compare stepping with stepping.
    """
    decodes = of(Decode, simulate([row("a", output_len=50, prompt="A5")]))

    assert [event.passes for event in decodes] == [1, 49]


@pytest.mark.parametrize("scheduler", ["fcfs", "lpm", "vtc", "drr", "dlpm"])
def test_passes_that_admit_nothing_are_one_event(scheduler):
    """
    b waits for memory until a ends, and its client has no running request.
    """
    rows = [row("a", output_len=50, prompt="A5"), row("b", at=1, output_len=40, prompt="B5")]

    decodes = of(Decode, simulate(rows, scheduler=scheduler))

    assert [event.passes for event in decodes] == [1, 49, 1, 39]


@pytest.mark.parametrize("scheduler", ["drr", "dlpm"])
def test_passes_that_admit_nothing_are_one_event_until_a_deficit_is_spent(scheduler):
    """
    a's deficit is 25 - 5, then two less for each output: 18 when its second request arrives, 0 nine
    passes later. Each refill adds 25, which is 13 passes, or 12 where a was one below 0.
    """
    rows = [row("a1", output_len=50, prompt="A5"), row("a2", at=1, output_len=40, prompt="B5")]

    decodes = of(Decode, simulate(rows, scheduler=scheduler, quantum=25))

    assert [event.passes for event in decodes] == [1, 9, 13, 12, 13, 2, 1, 39]


def test_a_run_ends_early_where_a_client_is_given_back_what_it_paid_in_advance():
    """
    j has paid for 20 outputs and is behind t, whose request is too large. When j's caller leaves, the
    price of what did not come makes j the first, and its small request fits.
    """
    rows = [
        row("j1", output_len=20, prompt="J5", cancel_us=5 * SECOND),
        row("t1", output_len=10, prompt="T5"),
        row("t2", at=1, output_len=48, prompt="U2"),
        row("j2", at=1, output_len=5, prompt="V5"),
    ]

    admitted = of(Admit, simulate(rows, scheduler="vtc-oracle", router="least-loaded"))

    assert [(each.request, each.t_us // SECOND) for each in admitted[2:]] == [("j2", 5), ("t2", 10)]


def test_a_run_ends_early_where_a_prediction_was_too_long():
    """
    a has paid for ten outputs, as its last request had, and ends after six. What it is given back
    makes its small request the first, before b's that is too large. Otherwise it would come at 41 s.
    """
    rows = [
        row("a0", output_len=10),
        row("a1", at=11, output_len=6, max_tokens=10),
        row("c", at=11, prompt="C10", output_len=30),
        row("b", at=16, prompt="B10", output_len=30),
        row("a2", at=16, prompt="X1", output_len=2, max_tokens=3),
    ]

    admitted = of(Admit, simulate(rows, scheduler="vtc-predict", router="least-loaded"))

    assert [each.t_us // SECOND for each in admitted if each.request == "a2"] == [17]


def test_the_pass_that_admits_and_the_run_behind_it_are_one_action():
    """
    Their ends are foreseen together, as long as no request arrives: the arrival, and one end.
    """
    rows = [row("a", output_len=50, prompt="A5")]
    cluster = Cluster(SimConfig(step_time="linear:1,0,0", kv_tokens=CAPACITY), rows)
    actions = []
    plan = cluster.kernel.at
    cluster.kernel.at = lambda *given: (actions.append(given[0]), plan(*given))

    cluster.run()

    assert actions == [0, 50 * SECOND]


@pytest.mark.parametrize("stop_s", [0.5, 2, 4.5, 30.5, 33])
def test_a_run_that_is_stopped_tells_what_stepping_tells(stop_s):
    """
    Within the pass that admits, within the run behind it, and where passes end.
    """

    def reported(*, skips):
        rows = [row("a", output_len=40, prompt="A5"), row("b", at=30, output_len=9, prompt="B1")]
        summary = Summary()
        config = SimConfig(step_time="linear:1,0,0", kv_tokens=CAPACITY, skips=skips)
        cluster = Cluster(config, rows, [summary], on_start=summary.start)

        def stop(_):
            cluster.kernel.stopped = True

        cluster.kernel.at(round(stop_s * SECOND), 1 << 60, stop, None)
        cluster.run()
        return summary.as_dict(interrupted=True)

    assert reported(skips=True) == reported(skips=False)

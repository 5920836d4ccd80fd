"""The ideal engine of DESIGN 6.3: small runs computed by hand, and the tests' own engine beside it."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.lab.simulation.traces import CAPACITY, SECOND, described, of, row, simulate, traces
from tests.reference.engine import Arrival, IdealEngine

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.request import Request
from fairhit.policies import make_policy
from fairhit_lab.baselines import ALL_ON_UNFIT, ALL_SCHEDULERS
from fairhit_lab.events import Admit, Dispatch, Evict, Finish, Reject


def admitted(events):
    """What each admission computed: (request, whole seconds, extend tokens)."""
    return [(e.request, e.t_us / SECOND, e.extend_len) for e in of(Admit, events)]


def finished(events):
    return [(e.request, e.t_us / SECOND) for e in of(Finish, events)]


def test_l_output_tokens_take_l_steps():
    """
    One request of three tokens, alone: admitted as it comes, its first token a step later.
    """
    assert described(simulate([row("1", output_len=3, client="a")])) == [
        "dispatch 1 @0",
        "enqueue 1 @0",
        "refill @0",
        "admit 1 @0",
        "decode a1 @1",
        "firsttoken 1 @1",
        "decode a1 @3",
        "finish 1 @3",
    ]


def test_who_arrives_as_a_step_ends_joins_the_next():
    """
    2 comes at the very end of 1's first step, 3 within the second.
    """
    rows = [row("1", output_len=4), row("2", at=1), row("3", at=1.5)]

    assert [(name, at) for name, at, _ in admitted(simulate(rows))] == [
        ("1", 0),
        ("2", 1),
        ("3", 2),
    ]


def test_who_arrives_at_an_idle_engine_starts_at_once():
    rows = [row("1", at=0.25, output_len=1), row("2", at=7.5, output_len=1)]

    assert finished(simulate(rows)) == [("1", 1.25), ("2", 8.5)]


@pytest.mark.parametrize(("inbatch", "extend"), [("share", 2), ("compute", 12)])
def test_a_prefix_is_shared_within_a_batch_or_computed_twice(inbatch, extend):
    """
    Both begin with the same ten tokens and come together; a third comes a step later.
    """
    rows = [row("1", prompt="A10 x2"), row("2", prompt="A10 y2"), row("3", at=1, prompt="A10 z2")]

    assert admitted(simulate(rows, inbatch=inbatch)) == [
        ("1", 0, 12),
        ("2", 0, extend),
        ("3", 1, 2),
    ]


def test_the_last_prompt_token_is_always_computed():
    rows = [row("1", prompt="A10"), row("2", at=5, prompt="A10")]

    assert admitted(simulate(rows)) == [("1", 0, 10), ("2", 5, 1)]


def test_outputs_stay_cached_where_the_trace_says_what_they_are():
    """
    The next turn of a conversation begins with the last one's prompt and answer.
    """
    answer = row("x", prompt="B4").prompt
    rows = [
        row("1", prompt="A10", output_len=4, output=answer),
        row("2", at=9, prompt="A10 B4 c3"),
    ]

    assert admitted(simulate(rows)) == [("1", 0, 10), ("2", 9, 3)]


def test_the_least_recently_used_leaf_goes_first():
    """
    A and B are cached, A used last; C needs the room of one of them, then A is still there.
    """
    rows = [
        row("1", prompt="A20", output_len=1),
        row("2", at=2, prompt="B20", output_len=1),
        row("3", at=4, prompt="A20", output_len=1),
        row("4", at=6, prompt="C30", output_len=1),
        row("5", at=8, prompt="A20", output_len=1),
    ]
    events = simulate(rows)

    assert [(e.t_us // SECOND, e.tokens) for e in of(Evict, events)] == [(6, 11)]
    assert admitted(events)[-1] == ("5", 8, 1)


def test_what_can_never_fit_is_rejected_on_arrival():
    rows = [row("1", prompt="A50", output_len=11), row("2", prompt="A50", output_len=10)]
    events = simulate(rows)

    [rejected] = of(Reject, events)
    assert (rejected.request, rejected.reason, rejected.worker) == ("1", "too-large", None)
    assert [event.request for event in of(Dispatch, events)] == ["2"]


@pytest.mark.parametrize(
    ("misfit", "order"), [("stop", ["1", "2", "3"]), ("skip", ["1", "3", "2"])]
)
def test_a_misfit_ends_the_pass_or_is_skipped(misfit, order):
    """
    1 leaves room for 3 but not for 2, which is older.
    """
    rows = [
        row("1", prompt="A30", output_len=10),
        row("2", at=1, prompt="B30", output_len=10),
        row("3", at=1, prompt="C5", output_len=5),
    ]
    events = simulate(rows, scheduler="fcfs", misfit=misfit)

    assert [event.request for event in of(Admit, events)] == order


def test_at_most_max_running_run():
    rows = [row(str(n), prompt="A2", output_len=2) for n in range(5)]

    assert [at for _, at, _ in admitted(simulate(rows, max_running=2))] == [0, 0, 2, 2, 4]


def test_ties_go_by_the_order_of_the_trace():
    """
    Same instant, same match, same client: the line that stands first goes first.
    """
    rows = [row(name, client="a", prompt="A3") for name in "zyx"]

    assert [name for name, _, _ in admitted(simulate(rows, max_running=1))] == ["z", "y", "x"]


@pytest.mark.parametrize("scheduler", ALL_SCHEDULERS)
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    rows=traces(cancels=False, programs=False, outputs=False),
    max_running=st.sampled_from([1, 3, 64]),
    misfit=st.sampled_from(["stop", "skip"]),
)
def test_it_decides_as_the_tests_own_engine_does(scheduler, rows, max_running, misfit):
    """Every admission and finish, in order, with passes of a second and arrivals on whole seconds."""
    rows = [_on_the_second(each) for each in rows]
    given = {"scheduler": scheduler, "max_running": max_running, "misfit": misfit, "quantum": None}
    events = simulate(rows, rpm_limit=10**6 if scheduler == "rpm" else None, **given)

    tree = RadixTree()
    seed = {"seed": Random("0/0").getrandbits(32)} if scheduler == "vtc-noisy" else {}
    engine = IdealEngine(
        policy=make_policy(scheduler, cache=tree, policies=ALL_SCHEDULERS, **seed),
        tree=tree,
        capacity=CAPACITY,
        max_running=max_running,
        skip_misfits=misfit == "skip",
    ).run([_arrival(each, order) for order, each in enumerate(rows)])

    assert [event.request for event in of(Admit, events)] == engine.admitted
    assert {event.request for event in of(Finish, events)} == set(engine.finished)
    assert {event.request for event in of(Reject, events)} == set(engine.rejected)


def _on_the_second(row_):
    at_us = -(-row_.arrival_us // SECOND) * SECOND
    return replace(row_, arrival_us=at_us, max_tokens=row_.output_len)


def _arrival(row_, order):
    request = Request(
        id=row_.id,
        client=row_.client,
        prompt=row_.prompt,
        input_len=len(row_.prompt),
        max_tokens=row_.max_tokens,
        order=order,
        arrival_us=row_.arrival_us,
    )
    return Arrival(step=row_.arrival_us // SECOND, request=request)


def test_every_scheduler_says_what_a_misfit_means():
    assert ALL_ON_UNFIT.keys() == ALL_SCHEDULERS.keys()

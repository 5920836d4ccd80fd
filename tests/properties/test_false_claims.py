"""What the papers claim and does not hold: each counter-example grows with time, past any bound.

Beside each stands the repaired statement, which holds for the same traffic. Numbers in brackets are
the rows of docs/reference/invariants.md.
"""

from itertools import pairwise

import pytest

from fairhit.core.costs import parse_cost
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.policies import fair
from fairhit.routers.d2lpm import D2LPM
from fairhit_lab.baselines.client_round_robin import ClientRoundRobin
from tests.properties.theorems import (
    MAX_INPUT,
    U_VTC,
    W_Q,
    Deficits,
    FairTerms,
    U,
    backlogged_gap,
    engine,
    most,
    policy_of,
)
from tests.properties.traffic import requests_of, unlike
from tests.reference.cluster import AtWorkers, run_cluster
from tests.reference.drr import PrintedDRR
from tests.reference.gaps import BackloggedGaps
from tests.reference.waits import Waits

Q = 5
DLPM_BOUND = 2 * (U + Q)


def grows(values):
    """Each at least half as much again as the one before; the times double."""
    return all(2 * later >= 3 * earlier for earlier, later in pairwise(values))


def cold_among_hot(count):
    """f and g wait all the time with hot prompts; the second request of f, of step 2, is cold."""
    rows = [("f", 0, 1, MAX_INPUT, 0, 4), ("f", 2, 0, MAX_INPUT, MAX_INPUT, 1)]
    rows += [("f", 2, 1, MAX_INPUT, 0, 4), ("g", 2, 2, MAX_INPUT, 0, 4)] * count
    return requests_of(rows)


def test_theorem_a_2_fails_for_a_request_that_later_ones_of_its_client_overtake():
    """[22] "The next request of f" waits as long as f goes on; with ageing it does not."""

    def past(count, **ageing):
        waits = Waits()
        policy = policy_of("dlpm", quantum=60, **ageing)
        waits.watch(engine(policy, max_running=4)).run(cold_among_hot(count))
        return waits.longest_of["1"]

    printed = [past(count) for count in (20, 40, 80, 160)]
    aged = [past(count, max_overtake=10) for count in (20, 40, 80, 160)]

    assert grows(printed)
    assert printed[-1] > 2 * 2 * (U + 60)
    assert max(aged) == aged[0] <= 2 * (U + 60)


def test_a_newcomer_is_served_at_once_all_the_same():
    """[21] The theorem holds for a client's first dispatch, which may be another of its requests."""
    for count in (20, 160):
        waits = Waits()
        waits.watch(engine(policy_of("dlpm", quantum=60), max_running=4)).run(cold_among_hot(count))
        assert waits.longest_first <= 2 * 60 + U


def test_theorem_a_4_worker_quanta_are_in_the_bound():
    """
    [27] f's requests share one prompt and stick to its worker until Q^w is used up; g, who spreads,
    has the other one to itself so long. Both wait throughout, but f at one of two workers only.
    """

    def gap(worker_quantum, needed):
        rows = [("f", 2 * each, 0, MAX_INPUT, 0, 10) for each in range(400)]
        rows += [("g", 4 * each, 1, MAX_INPUT, MAX_INPUT, 10) for each in range(200)]
        gaps = BackloggedGaps()
        run_cluster(
            requests_of(rows),
            workers=2,
            router=D2LPM(quantum=worker_quantum, min_match=8, charge="extend"),
            policy=lambda tree: policy_of("dlpm", tree=tree, quantum=Q),
            observers=AtWorkers(needed, gaps),
            steps=800,
            skip_misfits=False,
        )
        return most(gaps.largest)

    somewhere = [gap(worker_quantum, 1) for worker_quantum in (1000, 2000, 4000)]
    everywhere = [gap(worker_quantum, 2) for worker_quantum in (1000, 2000, 4000)]

    assert grows(somewhere)
    assert somewhere[-1] > 3 * 2 * DLPM_BOUND
    assert max(everywhere) <= 2 * DLPM_BOUND


def test_theorem_a_6_round_robin_for_each_client_is_not_fair():
    """
    [28] f sends long and short requests by turns, so that all long ones meet at one worker; g takes
    the other, where f never waits. VTC is fair at each worker; the sum is not.
    """

    def gap(count, needed):
        rows = []
        for each in range(count):
            long, short = (20, 20), (1, 1)
            rows += [("f", 20 * each, 0, *long), ("f", 20 * each, 1, *short)]
            rows += [("g", 20 * each, 2, *long)] * 4
        gaps = BackloggedGaps()
        run_cluster(
            requests_of([(who, step, stem, i, i, o) for who, step, stem, i, o in rows]),
            workers=2,
            router=ClientRoundRobin(),
            policy=lambda tree: policy_of("vtc", tree=tree),
            observers=AtWorkers(needed, gaps),
            steps=20 * count,
            charge_input=True,
            skip_misfits=False,
        )
        return most(gaps.largest)

    bound = 2 * 2 * U_VTC
    somewhere = [gap(count, 1) for count in (20, 40, 80)]
    everywhere = [gap(count, 2) for count in (20, 40, 80)]

    assert grows(somewhere)
    assert somewhere[-1] > 2 * bound
    assert max(everywhere) <= bound


def test_drr_without_the_gate_forgives_every_debt():
    """[23] Rounds that go on while memory is full serve the first in the ring for ever."""

    def gap(policy, count):
        gaps = backlogged_gap(policy, unlike(count), steps=None, charge_input=True)
        return most(gaps)

    def printed():
        policy = PrintedDRR(quantum=Q, cost=TokenCost(), gated=False)
        policy.tree = policy_of("drr").tree
        return policy

    ungated = [gap(printed(), count) for count in (40, 80, 160)]
    gated = [gap(policy_of("drr", quantum=Q), count) for count in (40, 80, 160)]

    assert grows(ungated)
    assert ungated[-1] > 2 * DLPM_BOUND
    assert max(gated) <= DLPM_BOUND


def test_dlpm_bounds_the_system_view_and_not_what_a_client_sees():
    """[29] f's prompts are all cached: in input + 2 output it gets more than g without end."""

    def gap(count, *, client_view):
        rows = [("f", 0, 0, MAX_INPUT, 0, 1), ("g", 0, 1, MAX_INPUT, MAX_INPUT, 1)] * count
        gaps = backlogged_gap(
            policy_of("dlpm", quantum=Q), requests_of(rows), charge_input=client_view, skips=False
        )
        return most(gaps)

    seen = [gap(count, client_view=True) for count in (100, 200, 400)]
    charged = [gap(count, client_view=False) for count in (100, 200, 400)]

    assert grows(seen)
    assert seen[-1] > 2 * DLPM_BOUND
    assert max(charged) <= DLPM_BOUND


def test_the_gap_grows_with_how_late_outputs_are_known():
    """[26] So the bound under full reservation needs its term for a pipeline of engine steps."""
    running = 6

    def gap(delay):
        rows = [("f", 0, 0, 1, 0, 9), ("g", 0, 1, MAX_INPUT, MAX_INPUT, 1)] * 200
        policy = policy_of("dlpm", quantum=Q)
        return most(backlogged_gap(policy, requests_of(rows), delay=delay, max_running=running))

    late = [gap(delay) for delay in (20, 40, 80)]

    assert gap(0) <= DLPM_BOUND
    assert grows(late)
    assert late[-1] > 2 * DLPM_BOUND
    assert all(
        gap <= DLPM_BOUND + 2 * W_Q * running * delay
        for gap, delay in zip(late, (20, 40, 80), strict=True)
    )


@pytest.mark.parametrize("count", [20, 80])
def test_vtc_at_one_worker_is_fair_in_the_same_story(count):
    """[10] The clients of Theorem A.6 in front of a single engine."""
    rows = [("f", 0, 0, 20, 20, 20), ("f", 0, 1, 1, 1, 1)] * count
    rows += [("g", 0, 2, 20, 20, 20)] * 2 * count
    gaps = backlogged_gap(policy_of("vtc"), requests_of(rows), skips=False, charge_input=True)

    assert most(gaps) <= 2 * U_VTC


@pytest.mark.parametrize(
    ("prepay", "cost", "rows"),
    [
        # The debt begins with a dear prompt; the last prompt on the overdraft is not free either.
        ("none", "linear:1,0.01", [("f", 0, 0, 24, 0, 36), ("f", 0, 0, 20, 2, 2), ("f", 21, 0, 20, 1, 40)]),
        # The outputs expected of one request and, on the overdraft, those of a whole batch.
        ("expected", "linear:1,2", [("f", 0, 0, 11, 1, 49), ("f", 0, 0, 10, 1, 50)]),
    ],
)  # fmt: skip
def test_the_overdraft_costs_more_than_itself(prepay, cost, rows, monkeypatch):
    """[39] q_i > -(U + B) is passed by what is admitted on the overdraft; the floor of row 36 is not."""
    rows += [("g", 0, 1, MAX_INPUT, MAX_INPUT, 1), ("g", 0, 2, MAX_INPUT, MAX_INPUT, 1)]
    monkeypatch.setattr(fair, "UNPAID", 0)
    policy = policy_of("fair", cost=parse_cost(cost), prepay=prepay, quantum=1, overdraft=1, near=1)
    seen = Deficits(policy)
    engine(policy, observers=[seen]).run(requests_of(rows))
    terms = FairTerms(parse_cost(cost), prepay)
    lowest = min(seen.lowest.values())

    assert lowest <= -(terms.prompt + terms.outputs + UNITS_PER_TOKEN)
    assert lowest > -(terms.below + UNITS_PER_TOKEN)

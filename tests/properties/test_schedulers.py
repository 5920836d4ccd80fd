"""The theorems, and what every scheduler owes its host: each runs here by being in SCHEDULERS.

Numbers in brackets are those of docs/reference/invariants.md.
"""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.radix_tree import RadixTree
from fairlead.core.service import TokenCost, Weights
from fairlead.metrics.fairness import BackloggedGaps, StarvationGaps
from fairlead.schedulers import SCHEDULERS, make_policy
from tests.properties.traffic import CAPACITY, CLIENTS, MAX_INPUT, arrivals
from tests.reference.dlpm import PrintedDLPM
from tests.reference.engine import IdealEngine

W_E, W_Q = 1, 2
U = W_E * MAX_INPUT + W_Q * CAPACITY
quanta = st.sampled_from([1, 3, 17, 60, 400])
WEIGHTS = {"a": 1, "b": 2, "c": Fraction(1, 2), "d": 3}
many = settings(max_examples=200, deadline=None)


def engine(name, *, observers=(), skip_misfits=True, max_running=64, **options):
    tree = RadixTree()
    policy = make_policy(name, cache=tree, **options)
    return IdealEngine(
        policy=policy,
        tree=tree,
        capacity=CAPACITY,
        observers=list(observers),
        skip_misfits=skip_misfits,
        max_running=max_running,
    )


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("skip_misfits", [True, False])
@many
@given(traffic=arrivals(oversize=True), max_running=st.sampled_from([1, 3, 64]))
def test_everybody_is_served_and_nothing_idles(name, skip_misfits, traffic, max_running):
    """[2, 3] The engine asserts that it never idles; oversize requests are rejected, not waited for."""
    run = engine(name, skip_misfits=skip_misfits, max_running=max_running).run(traffic)

    assert len(run.finished) + len(run.rejected) == len(traffic)
    assert set(run.rejected) == {
        a.request.id for a in traffic if a.request.input_len + a.request.max_tokens > CAPACITY
    }


@pytest.mark.parametrize("name", SCHEDULERS)
@many
@given(traffic=arrivals())
def test_one_trace_gives_one_order(name, traffic):
    """[4] Replays agree, whatever the hash seed or the order of dictionaries."""
    assert engine(name).run(traffic).admitted == engine(name).run(traffic).admitted


@pytest.mark.parametrize("name", SCHEDULERS)
@many
@given(traffic=arrivals())
def test_the_ledger_is_what_was_served(name, traffic):
    """[5] Every prompt token is counted once as extend or cached, every output token once."""
    run = engine(name).run(traffic)

    for client in CLIENTS:
        mine = [a.request for a in traffic if a.request.client == client]
        service = run.scheduler.service(client)
        assert service.input_len == sum(r.input_len for r in mine)
        assert service.output_len == sum(r.max_tokens for r in mine)
        assert service.extend_len >= len(mine)


@many
@given(traffic=arrivals(), quantum=quanta, skip_misfits=st.booleans())
def test_dlpm_decides_as_the_printed_algorithm_does(traffic, quantum, skip_misfits):
    """[6] The index, the lazy counters and the closed form change the cost, not one decision."""
    fast = engine("dlpm", quantum=quantum, skip_misfits=skip_misfits).run(traffic)
    tree = RadixTree()
    slow = IdealEngine(
        policy=PrintedDLPM(cache=tree, quantum=quantum, cost=TokenCost()),
        tree=tree,
        capacity=CAPACITY,
        skip_misfits=skip_misfits,
    ).run(traffic)

    assert fast.admitted == slow.admitted
    assert [fast.policy.credit(c) for c in CLIENTS] == [slow.policy.credit(c) for c in CLIENTS]


@many
@given(traffic=arrivals(), quantum=quanta, skip_misfits=st.booleans())
def test_theorem_4_1_two_backlogged_clients(traffic, quantum, skip_misfits):
    """[7] DLPM: |W_f - W_g| <= 2 (U + Q) while both are backlogged, and the tighter form of ours."""
    gaps = BackloggedGaps()
    engine("dlpm", quantum=quantum, observers=[gaps], skip_misfits=skip_misfits).run(traffic)

    assert max(gaps.largest.values(), default=0) <= 2 * (U + quantum)
    assert max(gaps.largest.values(), default=0) <= 2 * (W_Q * CAPACITY + W_E + quantum)


@many
@given(traffic=arrivals(), quantum=quanta)
def test_theorem_4_2_a_backlogged_client_is_not_left_behind(traffic, quantum):
    """[8] DLPM: W_g - W_f <= 2 (U + Q) while f is backlogged, however often g leaves and rejoins."""
    gaps = StarvationGaps(CLIENTS)
    engine("dlpm", quantum=quantum, observers=[gaps]).run(traffic)

    assert max(gaps.largest.values(), default=0) <= 2 * (U + quantum)


@many
@given(traffic=arrivals(), quantum=quanta, max_overtake=st.integers(0, 40))
def test_ageing_leaves_the_bound_between_clients_untouched(traffic, quantum, max_overtake):
    """[7] Ageing reorders inside a client only."""
    gaps = BackloggedGaps()
    engine("dlpm", quantum=quantum, max_overtake=max_overtake, observers=[gaps]).run(traffic)

    assert max(gaps.largest.values(), default=0) <= 2 * (U + quantum)


@many
@given(traffic=arrivals(), quantum=quanta)
def test_weighted_dlpm(traffic, quantum):
    """[9] |W_f / w_f - W_g / w_g| <= 2 Q + U (1 / w_f + 1 / w_g)."""
    gaps = BackloggedGaps()
    weights = Weights({client: float(weight) for client, weight in WEIGHTS.items()})
    run = engine("dlpm", quantum=quantum, weights=weights, observers=[gaps])
    run.weights = {client: Fraction(weight) for client, weight in WEIGHTS.items()}
    run.run(traffic)

    for (f, g), gap in gaps.largest.items():
        assert gap <= 2 * quantum + U * (1 / Fraction(WEIGHTS[f]) + 1 / Fraction(WEIGHTS[g]))


@many
@given(traffic=arrivals())
def test_vtc_theorem_4_4(traffic):
    """[10] VTC: |W_f - W_g| <= 2 max(w_p L, w_q M) in the service it charges."""
    gaps = BackloggedGaps()
    run = engine("vtc", observers=[gaps], skip_misfits=False)
    run.charge_input = True
    run.run(traffic)

    assert max(gaps.largest.values(), default=0) <= 2 * max(W_E * MAX_INPUT, W_Q * CAPACITY)

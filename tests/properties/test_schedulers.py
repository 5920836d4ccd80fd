"""What every scheduler guarantees its host: each runs here by being in ALL_SCHEDULERS.

Numbers in brackets are those of docs/reference/invariants.md.
"""

import os
import subprocess
import sys
from fractions import Fraction
from inspect import signature
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import ContextCost
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost, Weights
from fairhit.policies import IN_ENGINES, fair, make_policy
from fairhit.policies.dlpm import DLPM
from fairhit.policies.vtc import VTC
from fairhit_lab.baselines import ALL_ON_UNFIT, ALL_SCHEDULERS
from tests.properties.traffic import (
    CAPACITY,
    CLIENTS,
    MAX_INPUT,
    arrivals,
    duels,
    floods,
    late,
    unlike,
    visits,
)
from tests.reference.dlpm import PrintedDLPM
from tests.reference.engine import IdealEngine
from tests.reference.fair import PrintedFair
from tests.reference.gaps import BackloggedGaps, StarvationGaps

W_E, W_Q = 1, 2
U = W_E * MAX_INPUT + W_Q * CAPACITY
quanta = st.sampled_from([1, 3, 17, 60, 400])
WEIGHTS = {"a": 1, "b": 2, "c": Fraction(1, 2), "d": 3}
many = settings(max_examples=200, deadline=None)


def engine(name, *, observers=(), skip_misfits=True, max_running=64, **options):
    tree = RadixTree()
    policy = make_policy(name, cache=tree, policies=ALL_SCHEDULERS, **options)
    return IdealEngine(
        policy=policy,
        tree=tree,
        capacity=CAPACITY,
        observers=list(observers),
        skip_misfits=skip_misfits,
        max_running=max_running,
    )


def test_every_scheduler_says_what_a_misfit_means_to_its_host():
    assert list(ALL_ON_UNFIT) == list(ALL_SCHEDULERS)
    assert set(ALL_ON_UNFIT.values()) == {"stop", "skip"}
    assert set(ALL_SCHEDULERS) - set(IN_ENGINES) == {
        "rpm", "vtc-oracle", "vtc-noisy", "k-lpm", "wsc", "las", "justitia"
    }  # fmt: skip


@pytest.mark.parametrize("name", ALL_SCHEDULERS)
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


@pytest.mark.parametrize("name", ALL_SCHEDULERS)
@many
@given(traffic=arrivals())
def test_one_trace_gives_one_order(name, traffic):
    """[4] Replays agree, whatever the hash seed or the order of dictionaries."""
    assert engine(name).run(traffic).admitted == engine(name).run(traffic).admitted


@pytest.mark.parametrize("name", ALL_SCHEDULERS)
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


@pytest.mark.parametrize("name", ALL_SCHEDULERS)
def test_the_hash_seed_decides_nothing(name):
    """[4] Sets and dictionaries of other orders give the same admissions, in another process."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", f"from {__name__} import digest; print(digest({name!r}))"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def digest(name):
    """The order of admissions of a fixed traffic, as one number."""
    return crc32(" ".join(engine(name).run(visits(cycles=6)).admitted).encode())


@many
@given(traffic=arrivals(), quantum=quanta, skip_misfits=st.booleans(), weighted=st.booleans())
def test_dlpm_decides_as_the_printed_algorithm_does(traffic, quantum, skip_misfits, weighted):
    """[6] The index, the lazy counters and the closed form change the cost, not one decision."""
    weights = {"a": 1, "b": 2, "d": 3} if weighted else {}
    fast = engine("dlpm", quantum=quantum, skip_misfits=skip_misfits, weights=Weights(weights)).run(
        traffic
    )
    tree = RadixTree()
    slow = IdealEngine(
        policy=PrintedDLPM(cache=tree, quantum=quantum, cost=TokenCost(), weights=weights),
        tree=tree,
        capacity=CAPACITY,
        skip_misfits=skip_misfits,
    ).run(traffic)

    assert fast.admitted == slow.admitted
    assert [fast.policy.credit(c) for c in CLIENTS] == [slow.policy.credit(c) for c in CLIENTS]


@many
@given(
    traffic=arrivals() | floods() | duels(early_ends=True),
    settings=st.fixed_dictionaries(
        {
            "quantum": st.sampled_from([3, 17, 60, 400]),
            "overdraft": st.sampled_from([0, 1, 3]),
            "near": st.sampled_from([1, 3, 8]),
            "prepay": st.sampled_from(["expected", "none"]),
            "eviction": st.sampled_from(["wanted-last", "lru"]),
        }
    ),
    unpaid=st.sampled_from([0, 15, 65_536]),
    skip_misfits=st.booleans(),
    weighted=st.booleans(),
)
def test_fair_decides_as_its_algorithm_written_out_does(
    traffic, settings, unpaid, skip_misfits, weighted
):
    """[6] The heaps, the overdraft's schedule and the places change the cost, not one decision."""
    with patch.object(fair, "UNPAID", unpaid):
        fast, slow = fair_and_written_out(traffic, settings, skip_misfits, weighted)

    assert fast.admitted == slow.admitted
    assert [fast.policy.credit(c) for c in CLIENTS] == [slow.policy.credit(c) for c in CLIENTS]


def fair_and_written_out(traffic, settings, skip_misfits, weighted):
    """The same traffic under the policy and under its naive model."""
    weights = {"a": 1, "b": 2, "d": 3} if weighted else {}
    settings["cost"] = ContextCost(context=UNITS_PER_TOKEN // 10, attention=UNITS_PER_TOKEN // 100)
    fast = engine("fair", skip_misfits=skip_misfits, weights=Weights(weights), **settings).run(
        traffic
    )
    tree = RadixTree()
    slow = IdealEngine(
        policy=PrintedFair(cache=tree, weights=weights, **settings),
        tree=tree,
        capacity=CAPACITY,
        skip_misfits=skip_misfits,
    ).run(traffic)
    return fast, slow


def gap_of(policy, traffic, *, weights=None, charge_input=False, max_running=4):
    """The largest gap between two backlogged clients, and what a client got past a backlogged one."""
    both, past = BackloggedGaps(), StarvationGaps("abcdfg")
    IdealEngine(
        policy=policy,
        tree=policy.tree,
        capacity=CAPACITY,
        max_running=max_running,
        skip_misfits=False,
        observers=[both, past],
        weights=weights or {},
        charge_input=charge_input,
    ).run(traffic)
    return max(both.largest.values(), default=0), max(past.largest.values(), default=0)


def over_a_tree(kind, **options):
    """A policy of this class that knows the tree it was made over."""
    tree = RadixTree()
    if "cache" in signature(kind.__init__).parameters:
        options["cache"] = tree
    policy = kind(**options)
    policy.tree = tree
    return policy


class FreeOutputs(DLPM):
    def on_decode(self, request, *, before, tokens):
        """Charges nothing."""


class FreePrompts(DLPM):
    def on_admit(self, request, *, extend_len):
        self.remove(request)


class ForgivesDebt(DLPM):
    """The proof of Theorem A.2 resets q to 0 when a client rejoins."""

    def add(self, request):
        if not self._queue.count(request.client):
            credit = self.ledger.value(request.client)
            self.ledger._records.update(request.client, (max(0, credit), self.ledger.rounds))
        super().add(request)


Q = 5
DLPM_BOUND = 2 * (U + Q)


def test_theorem_4_1_needs_the_charge_for_outputs():
    """[7] The same flood: within the bound with DLPM, far past it without the charge."""
    flood = unlike(60)

    assert gap_of(over_a_tree(DLPM, quantum=Q), flood)[0] <= DLPM_BOUND
    assert gap_of(over_a_tree(FreeOutputs, quantum=Q), flood)[0] > 2 * DLPM_BOUND


def test_theorem_4_1_needs_the_charge_for_prompts():
    """[7] Without it, long prompts that are cached nowhere cost their client almost nothing."""
    flood = unlike(200)

    assert gap_of(over_a_tree(DLPM, quantum=Q), flood)[0] <= DLPM_BOUND
    assert gap_of(over_a_tree(FreePrompts, quantum=Q), flood)[0] > 2 * DLPM_BOUND


def test_theorem_4_2_needs_debt_to_survive():
    """[8] Forgiving debt at each return gives g more without end; keeping it does not."""

    def past(kind):
        return [
            gap_of(over_a_tree(kind, quantum=Q), visits(cycles=cycles), max_running=1)[1]
            for cycles in (10, 20, 40)
        ]

    kept, forgiven = past(DLPM), past(ForgivesDebt)
    assert max(kept) <= DLPM_BOUND
    assert forgiven[0] < forgiven[1] < forgiven[2]
    assert forgiven[2] > 2 * DLPM_BOUND


def test_weighted_dlpm_needs_the_weights():
    """[9] g has half the weight; served alike, it gets twice what it should, without end."""
    weights = {"f": Fraction(2), "g": Fraction(1)}
    bound = 2 * Q + U * (Fraction(1, 2) + 1)
    weighted = over_a_tree(DLPM, quantum=Q, weights=Weights({"f": 2}))
    blind = over_a_tree(DLPM, quantum=Q)

    assert gap_of(weighted, unlike(120), weights=weights)[0] <= bound
    assert gap_of(blind, unlike(120), weights=weights)[0] > 2 * bound


class NeverLifted(VTC):
    def _lift(self, client):
        if client not in self.ledger:
            self.ledger.lift(client, 0)


class ChargesNothing(VTC):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.ledger._raise = lambda *_: None


VTC_BOUND = 2 * max(W_E * MAX_INPUT, W_Q * CAPACITY)


def test_vtc_theorem_4_4_needs_the_lift():
    """[10] Without it g, who was away, is served alone until it has caught up."""
    assert gap_of(over_a_tree(VTC), late(60), charge_input=True)[0] <= VTC_BOUND
    assert gap_of(over_a_tree(NeverLifted), late(60), charge_input=True)[0] > 2 * VTC_BOUND


def test_vtc_theorem_4_4_needs_the_charge():
    """[10] Without it the order of arrival decides, and f, with longer outputs, gets more."""
    assert gap_of(over_a_tree(VTC), unlike(80), charge_input=True)[0] <= VTC_BOUND
    assert gap_of(over_a_tree(ChargesNothing), unlike(80), charge_input=True)[0] > 2 * VTC_BOUND

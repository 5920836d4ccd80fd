"""Each bound needs what it says it needs: one mutated policy for each, which breaks it.

A bound that no mutant breaks might be far too wide to test anything. Those of Theorems 4.1, 4.2, 4.4
and of the weights are in test_schedulers.py. Numbers in brackets are rows of the invariants.
"""

from dataclasses import replace

import pytest

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.policies.dlpm import DLPM
from fairhit.policies.fair import Fair
from fairhit.policies.vtc import VTC
from fairhit.policies.vtc_predict import PrepaidVTC
from tests.properties import theorems
from tests.properties.theorems import MAX_INPUT, policy_of
from tests.properties.traffic import requests_of, unlike
from tests.reference.drr import PrintedDRR


def made(kind, **settings):
    """A policy of this class, whatever its name was, that knows its tree."""

    def policy(_, *, tree=None, **given):
        tree = tree or RadixTree()
        cache = {"cache": tree} if issubclass(kind, DLPM | Fair) else {}
        chosen = kind(**cache, **given, **settings)
        chosen.tree = tree
        return chosen

    return policy


class FreeOutputs(DLPM):
    def on_decode(self, request, *, before, tokens):
        """Charges nothing."""


class ForgetsService(VTC):
    """A client that returns is put at the level of the others, though it had received more."""

    def _lift(self, client):
        super()._lift(client)
        self.ledger._counters.update(client, self._level())


class StartsInDebt(DLPM):
    """A newcomer pays an entrance fee."""

    def add(self, request):
        if request.client not in self.ledger._records:
            debt = (-2_000 * UNITS_PER_TOKEN, self.ledger.rounds)
            self.ledger._records.admit(request.client, debt)
        super().add(request)


class LetsPass(DLPM):
    """Ageing that goes on while the due request's own client takes the room it waits for."""

    def skip(self, request):
        self._queue._index.hide(request)


class PricesTokens(DLPM):
    """Charges tokens where service is counted by another cost."""

    def __init__(self, *, cost, **settings):
        super().__init__(cost=TokenCost(), **settings)


class KeepsThePrepaid(PrepaidVTC):
    """Predicts what was reserved and gives nothing back."""

    def __init__(self, **settings):
        super().__init__(predict=lambda request: request.max_tokens, **settings)

    def on_end(self, request, *, output_len, finished):
        """Keeps it."""


class UngatedDRR(PrintedDRR):
    def __init__(self, *, quantum):
        super().__init__(quantum=quantum, cost=TokenCost(), gated=False)


class NoFloor(OverdraftDeficits):
    """A client in debt is within its overdraft."""

    def standing(self, client):
        return Standing.OPEN if self.value(client) > 0 else Standing.HITS


class FloorFollows(OverdraftDeficits):
    """Each charge in debt sets d_i anew, so that the floor of the overdraft moves down with it."""

    def charge(self, client, units, *, placed=False):
        super().charge(client, units)
        value = self.value(client)
        if value <= 0 and client in self._floors:
            self._floors.update(client, value - self.overdraft * UNITS_PER_TOKEN)
            self._report(client)


class RefillsForHits(OverdraftDeficits):
    """A client that is not within its overdraft is refilled though others have credit."""

    @property
    def is_dry(self):
        return bool(self._expected)


class BlindToWeights(OverdraftDeficits):
    def quantum_of(self, client):
        return self._quantum * UNITS_PER_TOKEN


class FreeHits(Fair):
    """Requests on the overdraft are free: nothing of them was computed, after all."""

    def on_admit(self, request, *, extend_len):
        before = self.ledger.value(request.client)
        super().on_admit(request, extend_len=extend_len)
        if before <= 0:
            self.ledger.give_back(request.client, before - self.ledger.value(request.client))


class KeepsTheExpected(Fair):
    """What was expected and not emitted is not given back."""

    def on_end(self, request, *, output_len, finished):
        predicted, _ = self._prepaid._predicted[request.id]
        super().on_end(request, output_len=max(output_len, predicted), finished=finished)


def with_ledger(ledger):
    """`fair` over other deficits."""

    class Mutant(Fair):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.ledger.__class__ = ledger

    return Mutant


def flood(count, *, f, g):
    """f and g wait from the start; a kind is (input, own part of it, output)."""
    return requests_of([("f", 0, 0, *f), ("g", 0, 1, *g)] * count)


def big_among_small(count):
    """f's second request needs all of memory; its hot small ones always leave something else free."""
    rows = [("f", 0, 0, 8, 0, 4), ("f", 1, 1, MAX_INPUT, MAX_INPUT, 36)]
    rows += [("f", 1, 0, 8, 0, 3 + each % 3) for each in range(count)]
    rows += [("g", 1, 2, 8, 0, 3 + each % 3) for each in range(count)]
    return requests_of(rows)


def stops_short(count):
    """f asks for fifty outputs and stops after one; g does what it says."""
    rows = [("f", 0, 0, 1, 1, 50), ("g", 0, 1, 1, 1, 1)] * count
    return [type(each)(step=0, request=each.request, output_len=1) for each in requests_of(rows)]


def comes_and_goes(count):
    """a waits all the time; b's long requests come one by one, each when the last is done."""
    rows = [("a", 0, 0, 4, 4, 1)] * (120 * count)
    return requests_of(rows + [("b", 60 * each, 1, 1, 1, 59) for each in range(count)])


def late_comer():
    """f is served alone; g comes for the first time at step 20."""
    return requests_of([("f", 0, 0, MAX_INPUT, MAX_INPUT, 1)] * 200 + [("g", 20, 1, 4, 4, 1)])


DLPM_CASE = {"quantum": 5, "skips": True}
CASES = [
    (
        "[15] outputs are free at every worker",
        lambda **given: theorems.d2lpm_5_1(workers=2, worker_quantum=5, quantum=5, **given),
        FreeOutputs,
        {"traffic": flood(150, f=(MAX_INPUT, 0, 20), g=(MAX_INPUT, MAX_INPUT, 1))},
    ),
    (
        "[20] VTC forgets what a client had when it returns",
        theorems.vtc_4_9,
        ForgetsService,
        {"traffic": comes_and_goes(15)},
    ),
    (
        "[21] a newcomer starts in debt",
        theorems.first_dispatch,
        StartsInDebt,
        {"traffic": late_comer(), **DLPM_CASE},
    ),
    (
        "[22] a due request that does not fit is overtaken by its own client",
        theorems.every_request,
        LetsPass,
        {"traffic": big_among_small(150), "max_overtake": 0, **DLPM_CASE},
    ),
    (
        "[23] DRR is refilled while memory is full",
        theorems.drr,
        UngatedDRR,
        {"traffic": unlike(160), **DLPM_CASE},
    ),
    (
        "[24] tokens are charged where another cost counts",
        lambda **given: theorems.any_cost(name="dlpm", text="piecewise:0/1,9@5", **given),
        PricesTokens,
        {"traffic": flood(100, f=(1, 1, 20), g=(1, 1, 5)), "quantum": 5},
    ),
    (
        "[25] what was prepaid and did not come is kept",
        theorems.prepaid,
        KeepsThePrepaid,
        {"traffic": stops_short(300), "name": "vtc-oracle"},
    ),
    (
        "[26] outputs are never reported",
        theorems.notified_late,
        FreeOutputs,
        {
            "traffic": flood(100, f=(MAX_INPUT, 0, 20), g=(MAX_INPUT, MAX_INPUT, 1)),
            "quantum": 5,
            "delay": 1,
        },
    ),
]


def against(long, *, short):
    """a sends hot long answers and receives them whole, b answers that end early; both all the time."""
    rows = [("a", 0, 0, *long), ("b", 0, 1, *short)] * 60
    return [
        replace(each, output_len=-(-each.request.max_tokens // 10))
        if each.request.client == "b"
        else each
        for each in requests_of(rows)
    ]


def all_short(count):
    """d's and c's prompts are hot, and all their answers end after a tenth; c sends two kinds."""
    rows = [("d", 0, 0, 20, 0, 36), ("c", 0, 1, 10, 1, 30), ("c", 0, 1, 12, 0, 36)] * count
    return [
        replace(each, output_len=-(-each.request.max_tokens // 10)) for each in requests_of(rows)
    ]


PLAIN_CASE = {
    "traffic": against((MAX_INPUT, 0, 20), short=(20, 1, 36)),
    "skips": True,
    "quantum": 17,
    "overdraft": 1,
    "near": 8,
    "text": "context:2,0.1,0.01",
}
FAIR_CASE = {**PLAIN_CASE, "prepay": "expected", "unpaid": 0}
SHORT_CASE = {**FAIR_CASE, "traffic": all_short(120), "overdraft": 5, "text": "linear:1,2"}
CASES += [
    ("[36] no floor", theorems.fair_deficits, with_ledger(NoFloor), FAIR_CASE),
    ("[36] the floor follows", theorems.fair_deficits, with_ledger(FloorFollows), FAIR_CASE),
    ("[37] no floor", theorems.fair_gap, with_ledger(NoFloor), FAIR_CASE),
    ("[37] the floor follows", theorems.fair_gap, with_ledger(FloorFollows), SHORT_CASE),
    ("[37] the expected is kept", theorems.fair_gap, KeepsTheExpected, FAIR_CASE),
    ("[37] no floor, prepay none", theorems.fair_unpaid, with_ledger(NoFloor), PLAIN_CASE),
    ("[37] refills too soon", theorems.fair_unpaid, with_ledger(RefillsForHits), PLAIN_CASE),
    ("[37] all have one weight", theorems.fair_weighted, with_ledger(BlindToWeights), SHORT_CASE),
    ("[38] hits are free", theorems.fair_past, FreeHits, SHORT_CASE),
    ("[38] refills too soon", theorems.fair_past, with_ledger(RefillsForHits), FAIR_CASE),
]


@pytest.mark.parametrize(
    ("ratio", "kind", "case"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_mutant_breaks_the_bound_that_the_policy_keeps(ratio, kind, case, monkeypatch):
    """[15, 20-26, 36-38] The same traffic: at most 1 with the policy as it is, more with the mutant."""
    monkeypatch.setattr(theorems, "STEPS", 2_000)

    assert ratio(**case, policy=policy_of) <= 1
    assert ratio(**case, policy=made(kind)) > 1

"""Heaps, lazy counters and closed forms against the papers' loops written out the slow way.

The number in brackets is that of docs/reference/invariants.md.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import parse_cost
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.policies import make_policy
from fairhit_lab.baselines import ALL_SCHEDULERS
from tests.properties.traffic import CAPACITY, CLIENTS, arrivals, floods
from tests.reference.drr import PrintedDRR
from tests.reference.engine import IdealEngine
from tests.reference.vtc import PrintedVTC

some = settings(max_examples=100, deadline=None)
costs = st.sampled_from(["linear:1,2", "profiled", "flops:llama-2-7b", "piecewise:1,0.5@4/2,3@3"])


def mean_of(request, last_five):
    return (2 * sum(last_five) + len(last_five)) // (2 * len(last_five)) if last_five else 0


def most(request, last_five):
    return request.max_tokens


def odd_length(request, last_five=()):
    """An oracle that is wrong: too short and, before the cap, too long."""
    return request.order * 7 % 30


# Name, settings of ours, settings of the one written out.
VTCS = [
    ("vtc", {}, {}),
    ("lcf", {}, {"lift": False}),
    ("vtc-predict", {}, {"predict": mean_of}),
    ("vtc-oracle", {}, {"predict": most}),
    ("vtc-oracle", {"output_len": odd_length}, {"predict": odd_length}),
]


def run(policy, tree, traffic, skip_misfits):
    return IdealEngine(policy=policy, tree=tree, capacity=CAPACITY, skip_misfits=skip_misfits).run(
        traffic
    )


@pytest.mark.parametrize("case", VTCS, ids=lambda case: case[0])
@some
@given(traffic=arrivals() | floods(), cost=costs, skip_misfits=st.booleans())
def test_vtc_decides_as_the_printed_algorithms_do(case, traffic, cost, skip_misfits):
    """[19] Algorithms 2 and 3, and LCF: the same admissions and the same counters at the end."""
    name, fast, slow = case
    cost, tree = parse_cost(cost), RadixTree()
    quick = run(
        make_policy(name, cache=tree, policies=ALL_SCHEDULERS, cost=cost, **fast),
        tree,
        traffic,
        skip_misfits,
    )
    naive = run(PrintedVTC(cost=cost, **slow), RadixTree(), traffic, skip_misfits)

    assert quick.admitted == naive.admitted
    assert [quick.policy.credit(c) for c in CLIENTS] == [naive.policy.credit(c) for c in CLIENTS]


@some
@given(
    traffic=arrivals() | floods(),
    cost=costs,
    quantum=st.sampled_from([1, 3, 17, 60, 400]),
    skip_misfits=st.booleans(),
)
def test_drr_decides_as_the_ring_written_out_does(traffic, cost, quantum, skip_misfits):
    """[19] The heap of turns and the closed form of the refill change the cost, not one decision."""
    cost, tree = parse_cost(cost), RadixTree()
    policy = make_policy("drr", cache=tree, cost=cost, quantum=quantum)
    quick = run(policy, tree, traffic, skip_misfits)
    naive = run(PrintedDRR(quantum=quantum, cost=cost), RadixTree(), traffic, skip_misfits)

    assert quick.admitted == naive.admitted
    assert [quick.policy.credit(c) for c in CLIENTS] == [naive.policy.credit(c) for c in CLIENTS]


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "admit", "admit", "misfit", "decode", "finish", "cancel"]),
        st.integers(0, 99),
    ),
    min_size=30,
    max_size=150,
)


class Both:
    """Two schedulers given the same events, step by step; they must choose the same."""

    def __init__(self, policy, printed):
        self.schedulers = [
            FairQueue(policy, max_skips=None),
            FairQueue(printed, max_skips=None),
        ]
        self.running = []  # [request, emitted]
        self.order = 0

    def tell(self, what, *args, **named):
        return [getattr(scheduler, what)(*args, **named) for scheduler in self.schedulers]

    def add(self, number):
        self.order += 1
        request = Request(
            id=str(self.order),
            client=CLIENTS[number % 3],
            prompt=(self.order,),
            input_len=1 + number % 2,
            max_tokens=1 + number % 9,
            order=self.order,
        )
        self.tell("add", request)

    def admit(self, _, *, misfits=0):
        self.tell("begin_pass")
        for _ in range(misfits + 1):
            chosen, other = self.tell("propose")
            assert chosen is other
            if chosen and misfits:
                self.tell("skip", chosen)
                misfits -= 1
            elif chosen:
                self.tell("admit", chosen, extend_len=1)
                self.running.append([chosen, 0])

    def misfit(self, number):
        self.admit(number, misfits=1)

    def decode(self, number):
        if self.running:
            entry = self.running[number % len(self.running)]
            request, emitted = entry
            entry[1] += (more := min(number % 5, request.max_tokens - emitted))
            self.tell("decode", request, more)

    def finish(self, number, *, what="finish"):
        if self.running:
            request, _ = self.running.pop(number % len(self.running))
            self.tell(what, request)

    def cancel(self, number):
        self.finish(number, what="cancel")


@pytest.mark.parametrize("name", ["vtc-predict", "vtc-oracle"])
@some
@given(steps=steps)
def test_prepaid_vtc_settles_whatever_ends_a_request(name, steps):
    """[19] Any order of arrivals, skips, outputs, finishes and aborts, beside Algorithm 3 as printed."""
    cost = parse_cost("profiled")
    policy = make_policy(name, cache=RadixTree(), policies=ALL_SCHEDULERS, cost=cost)
    printed = PrintedVTC(cost=cost, predict=mean_of if name == "vtc-predict" else most)
    both = Both(policy, printed)
    for what, number in steps:
        getattr(both, what)(number)
        assert all(policy.credit(c) == printed.credit(c) for c in CLIENTS)

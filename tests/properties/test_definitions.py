"""The numbers a reader may doubt, against their definitions written a second time and differently.

Jain's index by the coefficient of variation, entitlement by what max-min fairness forbids, percentiles by
numpy, a service gap by all pairs of instants. `test_summary.py` has the same for whole lists of events.
"""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.ledgers.entitlement import entitlements
from fairhit_lab.metrics.distribution import EXACT, Distribution
from fairhit_lab.metrics.gaps import OUTPUT_WEIGHT, PairGaps, WorkerGaps
from fairhit_lab.metrics.summary.report import _jain_index, entitlement_shares

ONE = 10**6  # a weight of 1, in millionths
rates = st.lists(st.integers(0, 10**9), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(rates)
def test_jains_index_is_the_share_that_its_variation_leaves(services):
    """
    Jain, Chiu and Hawe (1984) give the index as 1 / (1 + CV^2), CV the standard deviation in the mean.
    """
    found = _jain_index(services)

    mean = np.mean(services)
    if mean == 0:
        assert found is None
        return
    variation = np.std(services) / mean
    assert found == pytest.approx(1 / (1 + variation**2))
    assert 1 / len(services) - 1e-12 <= found <= 1 + 1e-12
    assert _jain_index([7 * each for each in services]) == pytest.approx(found)


clients = st.lists(
    st.tuples(st.integers(1, 400), st.sampled_from([ONE // 2, ONE, 3 * ONE])),
    min_size=1,
    max_size=7,
)


@settings(max_examples=300, deadline=None)
@given(clients, st.integers(1, 1500))
def test_entitlements_leave_nothing_to_take_from_whom_has_more(rows, amount):
    """
    Max-min fairness by its definition: nothing is lost, no client has more than it asked for, and who has
    less than it asked for has, by weight, as much as the one with most.
    """
    asked = {str(number): row for number, row in enumerate(rows)}

    found = entitlements([(name, *row) for name, row in asked.items()], amount)

    total = sum(demand for demand, _ in asked.values())
    assert sum(found.values()) == pytest.approx(min(amount, total))
    levels = {name: found[name] / weight for name, (_, weight) in asked.items()}
    for name, (demand, _) in asked.items():
        assert found[name] <= demand + 1e-9
        if found[name] < demand - 1e-6:
            assert levels[name] == pytest.approx(max(levels.values()))


@settings(max_examples=200, deadline=None)
@given(clients, st.randoms(use_true_random=False))
def test_a_share_of_entitlement_is_what_a_client_got_by_the_level_of_the_water(rows, rng):
    """
    A second water-filling, by bisection of the level instead of filling one client after the other.
    """
    tallies = {}
    for number, (demand, weight) in enumerate(rows):
        got = rng.randint(0, demand)
        tallies[str(number)] = Received(got, weight)
    demands = {str(number): demand for number, (demand, _) in enumerate(rows)}
    amount = sum(each.tokens for each in tallies.values())

    found = entitlement_shares(tallies, demands)

    low, high = 0.0, 1.0 + max(demand / weight for demand, weight in rows)
    for _ in range(200):
        level = (low + high) / 2
        poured = sum(min(demand, level * weight) for demand, weight in rows)
        low, high = (level, high) if poured < amount else (low, level)
    expected = {
        str(number): tallies[str(number)].tokens / min(demand, high * weight)
        for number, (demand, weight) in enumerate(rows)
        if amount
    }
    assert found == {name: pytest.approx(share, rel=1e-6) for name, share in expected.items()}


class Received:
    """What a tally of the summary says of a client: its service and its weight."""

    def __init__(self, tokens, weight):
        self.tokens, self.weight = tokens, weight

    def service(self):
        return self

    def client_view(self):
        return self.tokens


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3 * EXACT), st.integers(1, 4))
def test_percentiles_are_numpys_however_many_parts_were_merged(seed, count, parts):
    """
    The smallest sample that so many percent do not exceed: numpy's "inverted_cdf". Many are in buckets,
    whose middle is at most 1/256 off; a mean of two percentiles, which the paper's figures show, is not
    more off than they are.
    """
    rng = Random(seed)
    samples = [int(rng.lognormvariate(10, 2)) for _ in range(count)]
    whole = Distribution()
    for part in range(parts):
        one = Distribution()
        for sample in samples[part::parts]:
            one.add(sample)
        whole.merge(one)

    percents = (1, 50, 90, 99, 100)

    exact = np.percentile(samples, percents, method="inverted_cdf")
    tolerance = 0 if count <= EXACT else 1 / 256
    for value, expected in zip(whole.percentiles(percents), exact, strict=True):
        assert abs(value - expected) <= tolerance * expected
    assert (whole.count, whole.total, whole.largest) == (count, sum(samples), max(samples))


WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 60)), max_size=40)
)
def test_a_service_gap_is_the_largest_over_all_pairs_of_instants(steps):
    """
    |W_f(t1, t2) - W_g(t1, t2)| for every t1 < t2 between which both wait throughout, one by one. The
    metric keeps two numbers per pair instead.
    """
    pairs = PairGaps(lambda client: int(WEIGHTS[client] * ONE))
    for client in WEIGHTS:
        pairs.track(client)
    worker = WorkerGaps(pairs, 0)
    waiting = dict.fromkeys(WEIGHTS, 0)
    total = dict.fromkeys(WEIGHTS, 0.0)
    # By instant: waiting requests of each client, and its service by weight so far.
    instants = [(dict(waiting), dict(total))]
    for client, what, tokens in steps:
        if what == 0:
            worker.wait(client)
            waiting[client] += 1
        elif what == 1 and waiting[client]:
            worker.leave(client)
            waiting[client] -= 1
        elif what == 2:
            worker.serve(client, tokens)
            total[client] += tokens / WEIGHTS[client]
        elif what == 3:
            worker.serve_all({client: 1}, tokens)
            total[client] += OUTPUT_WEIGHT * tokens / WEIGHTS[client]
        instants.append((dict(waiting), dict(total)))
    worker.close()

    for first, second in combinations(sorted(WEIGHTS), 2):
        largest = 0.0
        for one in range(len(instants)):
            for two in range(one, len(instants)):
                span = instants[one : two + 1]
                if all(who[first] and who[second] for who, _ in span):
                    moved = [
                        instants[two][1][client] - instants[one][1][client]
                        for client in (first, second)
                    ]
                    largest = max(largest, abs(moved[0] - moved[1]))
        found = pairs.largest.get((first, second))
        assert (found.tokens if found else 0.0) == pytest.approx(largest)

"""Entitlements against water-filling poured drop by drop."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.core.ledgers.entitlement import entitlements

ONE = 10**6


def poured(clients, served):
    """Give all unfilled clients water by weight until one is full, again and again."""
    got = {client: Fraction(0) for client, demand, _ in clients if demand}
    left = Fraction(served)
    while left:
        thirsty = [(c, d, w) for c, d, w in clients if d and got[c] < d]
        if not thirsty:
            break
        weights = sum(w for _, _, w in thirsty)
        drop = min(left / weights, *((d - got[c]) / w for c, d, w in thirsty))
        for client, _, weight in thirsty:
            got[client] += drop * weight
        left -= drop * weights
    return got


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from([ONE, 2 * ONE, ONE // 2])), max_size=6),
    st.integers(0, 200),
)
def test_entitlements_are_the_levels_of_water_filling(rows, served):
    clients = [(str(number), demand, weight) for number, (demand, weight) in enumerate(rows)]

    found = entitlements(clients, served)

    assert found == {
        client: pytest.approx(float(level)) for client, level in poured(clients, served).items()
    }


def test_what_a_client_leaves_is_divided_among_the_others_by_weight():
    clients = [("light", 10, ONE), ("heavy", 1000, ONE), ("paying", 1000, 3 * ONE)]

    assert entitlements(clients, 410) == {"light": 10.0, "heavy": 100.0, "paying": 300.0}

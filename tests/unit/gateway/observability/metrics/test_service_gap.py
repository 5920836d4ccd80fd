"""Service gaps of clients that wait at one engine, and their bound."""

import pytest

from fairhit.dispatch.engine import EnginePeaks
from fairhit.gateway.observability.metrics.service_gap import (
    MOST_WAITING,
    ClientGap,
    EngineGaps,
    bound,
    debt,
)


def add(gaps: EngineGaps, received: dict[str, float]) -> list[ClientGap]:
    return gaps.add(received, received.get)


def test_the_gap_of_two_is_the_widest_over_any_part_of_their_wait():
    """First a gains 30, then b gains 60: the widest gap over any interval is 60."""
    gaps = EngineGaps()
    for a, b in ((100, 500), (130, 500), (130, 520), (130, 560)):
        found = add(gaps, {"a": a, "b": b})

    assert found == [ClientGap("a", "b", 60)]


def test_a_client_that_stops_waiting_starts_anew():
    """A client without waiting requests has no claim to the service of others meanwhile."""
    gaps = EngineGaps()
    add(gaps, {"a": 0, "b": 0})
    assert add(gaps, {"a": 1000}) == []

    assert add(gaps, {"a": 1000, "b": 0}) == [ClientGap("a", "b", 0)]


def test_gaps_are_sorted_widest_first():
    gaps = EngineGaps()
    add(gaps, {"a": 0, "b": 0, "c": 0})

    found = add(gaps, {"a": 5, "b": 9, "c": 2})

    assert [(gap.first + gap.second, gap.tokens) for gap in found] == [
        ("bc", 7),
        ("ab", 4),
        ("ac", 3),
    ]


def test_the_cost_of_a_sample_is_bounded():
    """Of ten thousand waiting clients the sixteen that have waited longest are compared."""
    gaps = EngineGaps()
    add(gaps, {"first": 0})
    found = add(gaps, {f"c{number}": 0 for number in range(10_000)} | {"first": 0})

    assert len(found) == 16 * 15 // 2
    assert {"first"} <= {gap.first for gap in found}


def test_the_cost_is_bounded_without_named_clients():
    """Sixty thousand unnamed clients took 50 ms per engine, each second."""
    asked: list[str] = []
    waiting = dict.fromkeys([f"passing{number}" for number in range(10_000)])

    assert EngineGaps().add(waiting, asked.append) == []
    assert len(asked) == MOST_WAITING


def test_unnamed_clients_displace_no_named_ones():
    waiting = [*(f"passing{number}" for number in range(100)), "a", "b"]

    assert EngineGaps().add(waiting, {"a": 0.0, "b": 0.0}.get) == [ClientGap("a", "b", 0)]


def test_the_bound_is_that_of_the_design():
    largest = EnginePeaks()
    largest.extend, largest.output, largest.error, largest.in_flight = 1000, 100, 50, 4
    limit_u = debt(largest)

    assert limit_u == 1000 + 4 * (2 * 100 + 50)
    assert bound("dlpm", debt=limit_u, quantum=512, first=1, second=1) == 2 * (limit_u + 512)
    assert bound("vtc", debt=limit_u, quantum=512, first=1, second=1) == 2 * limit_u
    assert bound("dlpm", debt=limit_u, quantum=512, first=2, second=1) == 2 * 512 + limit_u * 1.5


@pytest.mark.parametrize("scheduler", ["fcfs", "lpm", "drr", "lcf"])
def test_other_policies_have_no_bound(scheduler):
    assert bound(scheduler, debt=1, quantum=1, first=1, second=1) is None

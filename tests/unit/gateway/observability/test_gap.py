"""Gaps: who waited together, how far apart they got, and what bounds it."""

import pytest

from fairhit.gateway.observability.metrics.recorder import Largest
from fairhit.gateway.observability.metrics.service_gap import (
    MOST_WAITING,
    ClientGap,
    EngineGaps,
    bound,
    debt,
)


def look(gaps: EngineGaps, received: dict[str, float]) -> list[ClientGap]:
    return gaps.add(received, received.get)


def test_the_gap_of_two_is_the_widest_over_any_part_of_their_wait():
    """a gets ahead by 30, then b by 20 of that and 40 more: from the top to the end it is 60."""
    gaps = EngineGaps()
    for a, b in ((100, 500), (130, 500), (130, 520), (130, 560)):
        found = look(gaps, {"a": a, "b": b})

    assert found == [ClientGap("a", "b", 60)]


def test_who_stops_waiting_begins_anew():
    """A client that had nothing to ask has no claim on what the others got meanwhile."""
    gaps = EngineGaps()
    look(gaps, {"a": 0, "b": 0})
    assert look(gaps, {"a": 1000}) == []

    assert look(gaps, {"a": 1000, "b": 0}) == [ClientGap("a", "b", 0)]


def test_of_many_the_widest_pair_comes_first():
    gaps = EngineGaps()
    look(gaps, {"a": 0, "b": 0, "c": 0})

    found = look(gaps, {"a": 5, "b": 9, "c": 2})

    assert [(gap.first + gap.second, gap.tokens) for gap in found] == [
        ("bc", 7),
        ("ab", 4),
        ("ac", 3),
    ]


def test_the_cost_of_a_look_is_bounded():
    """Ten thousand that wait are compared as the sixteen that have waited longest."""
    gaps = EngineGaps()
    look(gaps, {"first": 0})
    found = look(gaps, {f"c{number}": 0 for number in range(10_000)} | {"first": 0})

    assert len(found) == 16 * 15 // 2
    assert {"first"} <= {gap.first for gap in found}


def test_the_cost_is_bounded_where_nobody_is_known_by_name():
    """Sixty thousand of them took 50 ms for each engine, each second."""
    asked: list[str] = []
    waiting = dict.fromkeys([f"passing{number}" for number in range(10_000)])

    assert EngineGaps().add(waiting, asked.append) == []
    assert len(asked) == MOST_WAITING


def test_who_is_not_known_by_name_takes_nobody_s_place():
    waiting = [*(f"passing{number}" for number in range(100)), "a", "b"]

    assert EngineGaps().add(waiting, {"a": 0.0, "b": 0.0}.get) == [ClientGap("a", "b", 0)]


def test_the_bound_is_the_design_s():
    largest = Largest()
    largest.extend, largest.output, largest.error, largest.in_flight = 1000, 100, 50, 4
    owed = debt(largest)

    assert owed == 1000 + 4 * (2 * 100 + 50)
    assert bound("dlpm", debt=owed, quantum=512, first=1, second=1) == 2 * (owed + 512)
    assert bound("vtc", debt=owed, quantum=512, first=1, second=1) == 2 * owed
    assert bound("dlpm", debt=owed, quantum=512, first=2, second=1) == 2 * 512 + owed * 1.5


@pytest.mark.parametrize("scheduler", ["fcfs", "lpm", "drr", "lcf"])
def test_no_bound_is_told_where_none_is_known(scheduler):
    assert bound(scheduler, debt=1, quantum=1, first=1, second=1) is None

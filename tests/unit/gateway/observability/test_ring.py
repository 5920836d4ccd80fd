"""The last ten minutes: what a page asks for, and what is no longer there."""

import json

from fairhit.gateway.observability.page.dashboard import SampleHistory
from fairhit.gateway.observability.page.ranking import Ranking


def numbers(history: SampleHistory, since: int) -> list[int]:
    return [sample["n"] for sample in json.loads(history.since(since))]


def test_a_page_asks_for_what_it_lacks():
    history = SampleHistory(kept=5)
    for second in range(3):
        history.add({"t": second})

    assert json.loads(history.since(2)) == [{"n": 3, "t": 2}]
    assert numbers(history, 0) == [1, 2, 3]
    assert numbers(history, 3) == numbers(history, 99) == []


def test_the_oldest_goes():
    history = SampleHistory(kept=5)
    for second in range(12):
        history.add({"t": second})

    assert numbers(history, 0) == numbers(history, 7) == [8, 9, 10, 11, 12]
    assert numbers(history, 10) == [11, 12]


def test_the_most_active_are_shown_and_the_others_are_not():
    ranking = Ranking(2)
    ranking.update({"a": 10, "b": 500, "c": 300}, {})

    assert ranking.shown == ["b", "c"]


def test_who_gets_nothing_but_waits_is_shown():
    """The starving client is the one that the operator looks for."""
    ranking = Ranking(2)
    ranking.update({"a": 400, "b": 300, "c": 0}, {"c": 20})

    assert "c" in ranking.shown


def test_who_is_shown_stays_for_a_little_less():
    """Two clients that are equally busy do not take turns in the chart."""
    ranking = Ranking(1)
    ranking.update({"a": 100, "b": 90}, {})
    for _ in range(20):
        ranking.update({"a": 100, "b": 104}, {})
    assert ranking.shown == ["a"]

    for _ in range(120):
        ranking.update({"a": 0, "b": 104}, {})
    assert ranking.shown == ["b"]


def test_who_is_gone_is_forgotten():
    ranking = Ranking(5)
    ranking.update({"a": 100}, {})
    for _ in range(400):
        ranking.update({}, {})

    assert ranking.shown == []

"""The clients that the dashboard shows by name."""

from fairhit.gateway.observability.page.ranking import Ranking


def test_the_most_active_clients_are_shown():
    ranking = Ranking(2)
    ranking.update({"a": 10, "b": 500, "c": 300}, {})

    assert ranking.shown == ["b", "c"]


def test_a_starving_client_is_shown():
    """A client that waits without service is what an operator searches for."""
    ranking = Ranking(2)
    ranking.update({"a": 400, "b": 300, "c": 0}, {"c": 20})

    assert "c" in ranking.shown


def test_a_shown_client_is_not_replaced_by_a_slightly_more_active_one():
    """Two equally busy clients do not alternate in the chart."""
    ranking = Ranking(1)
    ranking.update({"a": 100, "b": 90}, {})
    for _ in range(20):
        ranking.update({"a": 100, "b": 104}, {})
    assert ranking.shown == ["a"]

    for _ in range(120):
        ranking.update({"a": 0, "b": 104}, {})
    assert ranking.shown == ["b"]


def test_an_idle_client_is_forgotten():
    ranking = Ranking(5)
    ranking.update({"a": 100}, {})
    for _ in range(400):
        ranking.update({}, {})

    assert ranking.shown == []

"""Which clients are shown by name: those that lately did most. Who is known for something stays a while."""

from collections.abc import Mapping

from fairlead.core.request import ClientId

# A client's activity counts half after 42 seconds.
_FADES = 0.9836
# One request that waits counts as this much service, so that who gets nothing is seen, too.
_WAITING = 50.0
# Whoever is shown is not replaced for a little more.
_STAYS = 1.3


class Ranking:
    """Activity of clients, faded with every look."""

    def __init__(self, most: int) -> None:
        assert most >= 1, most
        self._most = most
        self._scores: dict[ClientId, float] = {}
        self.shown: list[ClientId] = []

    def look(self, served: Mapping[ClientId, int], waiting: Mapping[ClientId, int]) -> None:
        """What each got since the last look, and how many of its requests wait. O(clients * log)."""
        scores = {name: score * _FADES for name, score in self._scores.items()}
        for name, tokens in served.items():
            scores[name] = scores.get(name, 0.0) + tokens
        for name, number in waiting.items():
            scores[name] = scores.get(name, 0.0) + number * _WAITING
        self._scores = {name: score for name, score in scores.items() if score >= 1}
        shown = set(self.shown)
        best = sorted(
            self._scores,
            key=lambda name: (-self._scores[name] * (_STAYS if name in shown else 1), name),
        )
        self.shown = sorted(best[: self._most])

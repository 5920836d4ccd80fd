"""Ranks clients for the dashboard, which shows the most active of late by name, with hysteresis."""

from collections.abc import Mapping
from heapq import nsmallest

from fairhit.core.request import ClientId

# Factor per second: activity counts half after 42 seconds.
_DECAY = 0.9836
# One waiting request counts as this much service, so that a starving client is shown, too.
_WAITING = 50.0
# Factor in favour of clients that are shown already.
_HYSTERESIS = 1.3


class Ranking:
    """Activity of clients, which decays with every update."""

    def __init__(self, most: int) -> None:
        assert most >= 1, most
        self._most = most
        self._updates = 0
        # Score of each client, and the update that changed it last.
        self._scores: dict[ClientId, tuple[float, int]] = {}
        self.shown: list[ClientId] = []

    def update(self, served: Mapping[ClientId, int], waiting: Mapping[ClientId, int]) -> None:
        """Add service since the last update, and numbers of waiting requests. O(clients given).

        All scores decay alike, so that an idle client overtakes none; a shown one may drop out.
        """
        self._updates += 1
        changed = dict.fromkeys((*served, *waiting))
        for name in changed:
            more = served.get(name, 0) + waiting.get(name, 0) * _WAITING
            self._scores[name] = self._score(name) + more, self._updates
        active = {name for name in self.shown if self._score(name) >= 1}
        if len(active) < len(self.shown):
            self._forget()
        candidates = self._scores if len(active) < len(self.shown) else {*self.shown, *changed}
        ranks = {
            name: (-score * (_HYSTERESIS if name in active else 1), name)
            for name in candidates
            if (score := self._score(name)) >= 1
        }
        self.shown = sorted(nsmallest(self._most, ranks, key=ranks.__getitem__))

    def _score(self, name: ClientId) -> float:
        score, update = self._scores.get(name, (0.0, self._updates))
        return score * _DECAY ** (self._updates - update)

    def _forget(self) -> None:
        """Drop clients whose score has decayed below 1. O(clients)."""
        self._scores = {n: kept for n, kept in self._scores.items() if self._score(n) >= 1}

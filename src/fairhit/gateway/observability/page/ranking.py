"""Which clients are shown by name: those that lately did most. Who is known for something stays a while."""

from collections.abc import Mapping
from heapq import nsmallest

from fairhit.core.request import ClientId

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
        self._looks = 0
        # Each as it was at the look that changed it last.
        self._scores: dict[ClientId, tuple[float, int]] = {}
        self.shown: list[ClientId] = []

    def look(self, served: Mapping[ClientId, int], waiting: Mapping[ClientId, int]) -> None:
        """What each got since the last look, and how many of its requests wait. O(those named here).

        All fade alike: who did nothing overtakes nobody, except that one who is shown falls out.
        """
        self._looks += 1
        changed = dict.fromkeys((*served, *waiting))
        for name in changed:
            more = served.get(name, 0) + waiting.get(name, 0) * _WAITING
            self._scores[name] = self._score(name) + more, self._looks
        stays = {name for name in self.shown if self._score(name) >= 1}
        if len(stays) < len(self.shown):
            self._forget()
        candidates = self._scores if len(stays) < len(self.shown) else {*self.shown, *changed}
        ranks = {
            name: (-score * (_STAYS if name in stays else 1), name)
            for name in candidates
            if (score := self._score(name)) >= 1
        }
        self.shown = sorted(nsmallest(self._most, ranks, key=ranks.__getitem__))

    def _score(self, name: ClientId) -> float:
        score, look = self._scores.get(name, (0.0, self._looks))
        return score * _FADES ** (self._looks - look)

    def _forget(self) -> None:
        """Those of whom nothing is left. O(clients)."""
        self._scores = {n: kept for n, kept in self._scores.items() if self._score(n) >= 1}

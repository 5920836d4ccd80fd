"""Reports of engines with the plug-in on each client: its charge, and the engine time measured for it.

Engines export both as counters (engines/client_metrics.py). Shares are of the last WINDOW_S seconds, over
all engines. An engine's first report is where its counters begin to count here; counters that went down
are those of a restarted engine.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from fairhit.core.request import ClientId, WorkerId

WINDOW_S = 60.0


class Consumed(NamedTuple):
    """A client's charge in computed prompt tokens, and engine time in seconds; or its shares of both."""

    charge: float
    seconds: float


NOTHING = Consumed(0.0, 0.0)


class Consumption:
    """Sums of the last WINDOW_S seconds by client, from engines' counters."""

    def __init__(self) -> None:
        self._counters: dict[WorkerId, Mapping[ClientId, Consumed]] = {}
        self._recent: deque[tuple[float, ClientId, Consumed]] = deque()
        self._sums: dict[ClientId, Consumed] = {}
        self._total = NOTHING

    def report(self, worker: WorkerId, counters: Mapping[ClientId, Consumed], now_s: float) -> None:
        """Take an engine's counters as of `now_s`, of any one clock. O(clients in them)."""
        before = self._counters.get(worker)
        self._counters[worker] = counters
        if before is None:
            return
        for client, now in counters.items():
            old = before.get(client, NOTHING)
            if now.charge < old.charge or now.seconds < old.seconds:
                old = NOTHING
            if now != old:
                new = Consumed(now.charge - old.charge, now.seconds - old.seconds)
                self._recent.append((now_s, client, new))
                self._add(client, new, 1)

    def forget(self, worker: WorkerId) -> None:
        """Drop the counters of an engine that is down; what it reported stays in the window. O(1)."""
        self._counters.pop(worker, None)

    def expire(self, now_s: float) -> None:
        """Remove what is older than the window. O(1) amortised."""
        while self._recent and self._recent[0][0] <= now_s - WINDOW_S:
            _, client, old = self._recent.popleft()
            self._add(client, old, -1)
        if not self._recent:  # without what the sums of differences left over
            self._sums.clear()
            self._total = NOTHING

    def share(self, client: ClientId) -> Consumed | None:
        """Return the client's shares of the charge and of the engine time; None if it had no part. O(1)."""
        got = self._sums.get(client)
        if got is None or self._total.charge <= 0 or self._total.seconds <= 0:
            return None
        return Consumed(got.charge / self._total.charge, got.seconds / self._total.seconds)

    def _add(self, client: ClientId, more: Consumed, sign: int) -> None:
        had = self._sums.get(client, NOTHING)
        self._sums[client] = Consumed(
            had.charge + sign * more.charge, had.seconds + sign * more.seconds
        )
        self._total = Consumed(
            self._total.charge + sign * more.charge, self._total.seconds + sign * more.seconds
        )

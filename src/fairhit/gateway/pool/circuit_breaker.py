"""Circuit breaker: an engine whose requests mostly fail is sent none for a while, then a few on trial.

Pure: times are arguments, in seconds of any one clock. The caller decides what counts as a failure.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

# A breaker opens if there were at most a third as many successes as failures.
_FAILURES_PER_SUCCESS = 3


class Phase(Enum):
    """State of a breaker; `/workers` and the metrics show the value."""

    CLOSED = "closed"  # all requests are sent
    OPEN = "open"  # none is sent
    HALF_OPEN = "half-open"  # a few are sent on trial


@dataclass(frozen=True, kw_only=True)
class BreakerRules:
    """Thresholds of a breaker."""

    failures: int = 10  # within the window, with few successes between them, open it
    window_s: float = 120.0
    open_s: float = 60.0  # until requests are sent on trial
    successes: int = 3  # requests sent on trial at a time, and successes that close the breaker

    def __post_init__(self) -> None:
        assert self.failures > 0 and self.successes > 0, self
        assert self.window_s > 0 and self.open_s > 0, self


class CircuitBreaker:
    """Breaker of one engine. A success costs an addition and no clock; every method is O(1).

    A busy engine that fails one request in a hundred has many failures in a window and should be used.
    Even an engine that fails a third is worth using while failed requests are retried. The breaker opens
    only where three answers in four are failures.
    """

    __slots__ = ("_failures", "_opened_at", "_succeeded", "_trials", "phase", "rules")

    def __init__(self, rules: BreakerRules) -> None:
        self.rules = rules
        self.phase = Phase.CLOSED
        self._succeeded = 0  # since the phase began
        # Time of each recent failure, and the number of successes before it.
        self._failures: deque[tuple[float, int]] = deque(maxlen=rules.failures)
        self._opened_at = 0.0
        self._trials = 0  # sent in this round of trials

    @property
    def lets_through(self) -> bool:
        """True if a request may be sent now."""
        if self.phase is Phase.HALF_OPEN:
            return self._trials < self.rules.successes
        return self.phase is Phase.CLOSED

    def sent(self) -> None:
        """Count a request as sent; required only while half open."""
        if self.phase is Phase.HALF_OPEN:
            self._trials += 1

    def succeeded(self) -> None:
        """Count a request that was answered in full."""
        self._succeeded += 1
        if self.phase is Phase.HALF_OPEN and self._succeeded >= self.rules.successes:
            self._enter(Phase.CLOSED)

    def failed(self, now: float) -> None:
        """Count a request that failed by the engine's fault; ignored while open."""
        if self.phase is Phase.HALF_OPEN:
            self._open(now)
        elif self.phase is Phase.CLOSED:
            self._failures.append((now, self._succeeded))
            if self._mostly_fails(now):
                self._open(now)

    def tick(self, now: float) -> None:
        """Begin a round of trials if the breaker has been open for long enough.

        Requests sent on trial may end without a result, because their clients disconnect: after another
        `open_s` the next round begins.
        """
        if self.phase is not Phase.CLOSED and now - self._opened_at >= self.rules.open_s:
            if self.phase is Phase.OPEN or not self.lets_through:
                self.half_open(now)

    def half_open(self, now: float) -> None:
        """Begin a round of trials now, e.g. because the engine has been restarted."""
        assert self.phase is not Phase.CLOSED, "a closed breaker needs no trial"
        succeeded = self._succeeded if self.phase is Phase.HALF_OPEN else 0
        self._enter(Phase.HALF_OPEN)
        self._succeeded = succeeded
        self._opened_at = now

    def change(self, rules: BreakerRules) -> None:
        """Replace the rules; recent failures are kept."""
        self.rules = rules
        self._failures = deque(self._failures, maxlen=rules.failures)

    def _mostly_fails(self, now: float) -> bool:
        if len(self._failures) < self.rules.failures:
            return False
        since, succeeded = self._failures[0]
        successes = self._succeeded - succeeded
        return (
            now - since <= self.rules.window_s
            and successes * _FAILURES_PER_SUCCESS <= self.rules.failures
        )

    def _open(self, now: float) -> None:
        self._enter(Phase.OPEN)
        self._opened_at = now

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._failures.clear()
        self._succeeded = self._trials = 0

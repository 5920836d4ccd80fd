"""The circuit breaker: when an engine's answers are mostly failures, it is left alone for a while.

Pure: times are arguments, in seconds of any one clock. What a failure is, the caller decides.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

# It takes so many failures for a success.
_OUTNUMBERED = 3


class Phase(Enum):
    """Where a breaker is; the values are what `/workers` and the metrics say."""

    CLOSED = "closed"  # all is well
    OPEN = "open"  # nothing is sent
    HALF_OPEN = "half-open"  # a few requests find out whether it is well again


@dataclass(frozen=True, kw_only=True)
class BreakerRules:
    """When a breaker opens, and when it closes again."""

    failures: int = 10  # so many within the window, and few successes between them, open it
    window_s: float = 120.0
    open_s: float = 60.0  # then a few are tried
    successes: int = 3  # so many are tried at a time, and so many close it

    def __post_init__(self) -> None:
        assert self.failures > 0 and self.successes > 0, self
        assert self.window_s > 0 and self.open_s > 0, self


class CircuitBreaker:
    """One engine's. A success costs an addition and no clock; everything is O(1).

    A busy engine that fails one request in a hundred has many failures in a window, and is well.
    Even one that fails a third is worth asking while there are retries; only one of whose answers
    three in four are failures is left alone.
    """

    __slots__ = ("_failures", "_opened_at", "_succeeded", "_tried", "phase", "rules")

    def __init__(self, rules: BreakerRules) -> None:
        self.rules = rules
        self.phase = Phase.CLOSED
        self._succeeded = 0  # since it was closed, or half opened
        # When each of the last failures was, and how many successes there were until then.
        self._failures: deque[tuple[float, int]] = deque(maxlen=rules.failures)
        self._opened_at = 0.0
        self._tried = 0  # sent since it was half opened, or since the last such number

    @property
    def lets_through(self) -> bool:
        """Whether a request may be sent now."""
        if self.phase is Phase.HALF_OPEN:
            return self._tried < self.rules.successes
        return self.phase is Phase.CLOSED

    def sent(self) -> None:
        """A request is to be sent. Only needs to be told while half open."""
        if self.phase is Phase.HALF_OPEN:
            self._tried += 1

    def succeeded(self) -> None:
        """A request was answered in full."""
        self._succeeded += 1
        if self.phase is Phase.HALF_OPEN and self._succeeded >= self.rules.successes:
            self._enter(Phase.CLOSED)

    def failed(self, now: float) -> None:
        """A request failed by the engine's fault. While open, such news is old."""
        if self.phase is Phase.HALF_OPEN:
            self._open(now)
        elif self.phase is Phase.CLOSED:
            self._failures.append((now, self._succeeded))
            if self._mostly_fails(now):
                self._open(now)

    def tick(self, now: float) -> None:
        """Time has passed: half open it when its rest is over.

        Those tried may never come to a verdict, because their callers leave; after another rest, as
        many again are tried.
        """
        if self.phase is not Phase.CLOSED and now - self._opened_at >= self.rules.open_s:
            if self.phase is Phase.OPEN or not self.lets_through:
                self.half_open(now)

    def half_open(self, now: float) -> None:
        """Try it before its rest is over, or try some more: there is a sign that it may be well."""
        assert self.phase is not Phase.CLOSED, "it needs no trial"
        succeeded = self._succeeded if self.phase is Phase.HALF_OPEN else 0
        self._enter(Phase.HALF_OPEN)
        self._succeeded = succeeded
        self._opened_at = now

    def change(self, rules: BreakerRules) -> None:
        """Go on by other rules; the failures so far count."""
        self.rules = rules
        self._failures = deque(self._failures, maxlen=rules.failures)

    def _mostly_fails(self, now: float) -> bool:
        if len(self._failures) < self.rules.failures:
            return False
        since, succeeded = self._failures[0]
        successes = self._succeeded - succeeded
        return (
            now - since <= self.rules.window_s and successes * _OUTNUMBERED <= self.rules.failures
        )

    def _open(self, now: float) -> None:
        self._enter(Phase.OPEN)
        self._opened_at = now

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._failures.clear()
        self._succeeded = self._tried = 0

"""Retries: how long to wait before one, and how many there may be in all. Pure: times are arguments.

A fleet that answers with errors because it has too much to do must not get every request several
times over: retries may be a share of the requests, and no more.
"""

import random
from collections import deque
from dataclasses import dataclass

# Requests and retries of the last seconds are held against each other; long enough for a steady
# rate, short enough that a fault does not use up the retries of the next.
WINDOW_S = 10.0


@dataclass(frozen=True, kw_only=True)
class RetryRules:
    """How often, and after which wait."""

    max_retries: int = 5  # of one request; each goes to an engine not tried yet
    initial_s: float = 0.05
    max_s: float = 30.0
    multiplier: float = 1.5
    jitter: float = 0.2  # 0.2: between 80 and 120 % of the wait
    budget: float = 0.2  # retries per request, over the last seconds
    floor: int = 50  # so many in that time are always allowed

    def wait_s(self, retry: int, rng: random.Random) -> float:
        """Seconds before the `retry`-th retry of a request, counted from 1.

        >>> RetryRules(jitter=0, initial_s=1, multiplier=2, max_s=3).wait_s(3, random.Random(0))
        3.0
        """
        assert retry >= 1, retry
        # The exponent is bounded because the number of retries is; floats do not overflow here.
        wait = min(self.max_s, self.initial_s * self.multiplier ** (retry - 1))
        return wait * (1 + self.jitter * (2 * rng.random() - 1))


class Retries:
    """Which retries are made, and when."""

    def __init__(self, rules: RetryRules, rng: random.Random) -> None:
        self.budget = RetryBudget(rules)
        self._rng = rng

    def change(self, rules: RetryRules) -> None:
        """Go on by other rules."""
        self.budget.rules = rules

    def grant(self, retry: int, *, spends: bool, now: float, requests: int) -> bool:
        """Whether a request may have its `retry`-th.

        One whose engine is gone adds nothing to what the engines have to do, and spends nothing of
        the budget; one whose engine answered with an error, or took too long, does.
        """
        if retry > self.budget.rules.max_retries:
            return False
        return not spends or self.budget.grant(now, requests)

    def wait_s(self, retry: int) -> float:
        """Seconds until the `retry`-th retry of a request."""
        return self.budget.rules.wait_s(retry, self._rng)


class RetryBudget:
    """Grants retries up to a share of the requests in the last seconds.

    `requests` below is how many requests there have been since the start: counting them costs
    the requests nothing, as they are numbered anyway.
    """

    def __init__(self, rules: RetryRules) -> None:
        self.rules = rules
        self.refused = 0
        self._granted: deque[float] = deque()  # when; at most the allowance of one window
        self._counts: deque[tuple[float, int]] = deque([(0.0, 0)])  # by the second

    def tick(self, now: float, requests: int) -> None:
        """Another second has begun. O(1) amortised."""
        self._counts.append((now, requests))
        # One from before the window stays: the window begins after it.
        while len(self._counts) > 1 and self._counts[1][0] <= now - WINDOW_S:
            self._counts.popleft()

    def grant(self, now: float, requests: int) -> bool:
        """Whether one more retry may be made; if so, it is counted. O(1) amortised."""
        while self._granted and self._granted[0] <= now - WINDOW_S:
            self._granted.popleft()
        recent = requests - self._counts[0][1]
        assert recent >= 0, "requests are never taken back"
        if len(self._granted) >= self.rules.floor + self.rules.budget * recent:
            self.refused += 1
            return False
        self._granted.append(now)
        return True

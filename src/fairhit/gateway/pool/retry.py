"""Retries of failed requests: the back-off before each, and a budget for all. Pure: times are arguments.

A fleet that answers with errors because it is overloaded must not be sent every request several times:
the number of retries is limited to a share of the number of requests.
"""

import random
from collections import deque
from dataclasses import dataclass

# Retries of this many seconds are compared with the requests of the same time: long enough for a steady
# rate, short enough that one incident does not use up the retries of the next.
WINDOW_S = 10.0


@dataclass(frozen=True, kw_only=True)
class RetryRules:
    """Limits and back-off of retries."""

    max_retries: int = 5  # of one request; each goes to an engine not tried yet
    initial_s: float = 0.05
    max_s: float = 30.0
    multiplier: float = 1.5
    jitter: float = 0.2  # 0.2: 80 to 120 % of the back-off
    budget: float = 0.2  # retries per request, over the window
    floor: int = 50  # retries always allowed within the window

    def wait_s(self, retry: int, rng: random.Random) -> float:
        """Back-off before the `retry`-th retry of a request, counted from 1, in seconds.

        >>> RetryRules(jitter=0, initial_s=1, multiplier=2, max_s=3).wait_s(3, random.Random(0))
        3.0
        """
        assert retry >= 1, retry
        # The number of retries is limited, hence the exponent: no overflow.
        wait = min(self.max_s, self.initial_s * self.multiplier ** (retry - 1))
        return wait * (1 + self.jitter * (2 * rng.random() - 1))


class Retries:
    """Grants retries, and limits them to a share of the requests of the last `WINDOW_S` seconds.

    The argument `requests` is the number of requests since the start, which the gateway keeps anyway:
    requests pay nothing for the budget.
    """

    def __init__(self, rules: RetryRules, rng: random.Random) -> None:
        self.rules = rules  # replaced by a reload
        self.refused = 0  # for want of budget
        self._rng = rng
        self._granted: deque[float] = deque()  # times; at most the allowance of one window
        self._counts: deque[tuple[float, int]] = deque([(0.0, 0)])  # requests by the second

    def tick(self, now: float, requests: int) -> None:
        """Note the number of requests; called once a second. O(1) amortised."""
        self._counts.append((now, requests))
        # The newest count from before the window is kept: the window's requests are counted from it.
        while len(self._counts) > 1 and self._counts[1][0] <= now - WINDOW_S:
            self._counts.popleft()

    def grant(self, retry: int, *, spends: bool, now: float, requests: int) -> bool:
        """True if a request may have its `retry`-th retry; one that `spends` is counted. O(1) amortised.

        A retry spends budget if the engine answered with an error or timed out. It does not if the engine
        was unreachable: the retry then adds no work to the fleet.
        """
        if retry > self.rules.max_retries:
            return False
        if not spends:
            return True
        while self._granted and self._granted[0] <= now - WINDOW_S:
            self._granted.popleft()
        recent = requests - self._counts[0][1]
        assert recent >= 0, "the number of requests only grows"
        if len(self._granted) >= self.rules.floor + self.rules.budget * recent:
            self.refused += 1
            return False
        self._granted.append(now)
        return True

    def wait_s(self, retry: int) -> float:
        """Back-off before the `retry`-th retry of a request, in seconds."""
        return self.rules.wait_s(retry, self._rng)

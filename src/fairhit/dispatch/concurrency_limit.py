"""Limit of an engine's requests in flight: fixed, or learnt from its reported load and first bytes.

The first byte of an answer shows that its request runs, and, since engines admit in order, that those
sent before it run too. A request that runs is not in the engine's queue; the others are, and that queue
shall be short, and never empty while requests wait at the gateway. Answers that are not streamed show no
first byte, so the engine is also asked how many requests run and wait. Its report has precedence over first
bytes, since some engines send a byte before the request runs; without a report first bytes must do.
"""

from collections import OrderedDict

# Requests in the engine's queue: one for the slot that becomes free now, one for the next.
TARGET = 2
# The first limit; doubled at each report while the engine has no queue.
_FIRST = 8
# Largest growth between two reports: requests sent in excess are in the engine's order, not in ours.
_MOST_GROWTH = 64
# Cached prompts beyond the limit, at most: where memory is short they need little of it, and would be evicted
# while they wait. Halved at each report of a queue that is too long.
_MOST_HITS = 16
# Requests that are not streamed, and not known to run, which an engine may be sent that shows neither
# its load nor first bytes. To starve it would be worse than a queue in the engine.
BLIND = 64
# First bytes over which the shortest queue is sought before the allowance shrinks.
_PERIOD = 16
_MOST_ALLOWED = 256


class ConcurrencyLimit:
    """Counts one engine's requests in flight and decides whether one more may be sent.

    `fixed` is the operator's limit, with which nothing is learnt; `target` the length of the engine's queue.
    """

    def __init__(self, *, fixed: int | None = None, target: int = TARGET) -> None:
        assert target >= 1 and (fixed is None or fixed >= 1), (target, fixed)
        self.in_flight = 0
        self._fixed = fixed
        self._target = target
        self._numbers = 0
        # Numbers of the requests not known to run, and whether each is streamed.
        self._unseen: OrderedDict[int, bool] = OrderedDict()
        self._streams = 0  # streamed requests among these
        self._restart()

    def _restart(self) -> None:
        self.size = self._fixed or _FIRST
        self.is_observed = False
        self._hits = _MOST_HITS
        # Requests beyond the size, until the next report, while all seem to run; 0 once a report showed
        # that they do not.
        self._leap = _MOST_GROWTH
        self._allowance = self._target
        self._shortest: int | None = None
        self._starts = 0
        self._ramping = True
        self._short = False  # a request had to wait since the last change

    @property
    def has_capacity(self) -> bool:
        """True if one more request may be sent. O(1)."""
        if self._fixed is not None:
            return self.in_flight < self._fixed
        if self.is_observed:
            return self.in_flight < (self.size if self._unseen else self.size + self._leap)
        if not self._unseen:  # all run: the engine's queue is empty
            return True
        return self._streams < self._allowance and len(self._unseen) - self._streams < BLIND

    @property
    def takes_hits(self) -> bool:
        """True if one more request may be sent whose prompt is cached. O(1)."""
        return self.is_observed and self._fixed is None and self.in_flight < self.size + self._hits

    def turned_away(self) -> None:
        """Record that a request waits because the limit is reached."""
        self._short = True

    def sent(self, *, streams: bool) -> int:
        """Count one more request in flight and return its number. O(1)."""
        self.in_flight += 1
        self._numbers += 1
        self._unseen[self._numbers] = streams
        self._streams += streams
        return self._numbers

    def started(self, number: int) -> None:
        """Record the first byte of the answer to request `number`. O(1) amortised."""
        self._seen(number)
        left = self._streams
        if not left and self._short:
            self._short = False
            more = max(1, self._allowance // 2)
            self._allowance = min(_MOST_ALLOWED, self._allowance + more)
        self._shortest = left if self._shortest is None else min(self._shortest, left)
        self._starts += 1
        if self._starts >= _PERIOD:
            self._allowance -= min(max(0, self._shortest - self._target), self._allowance - 1)
            self._starts, self._shortest = 0, None

    def ended(self, number: int, *, answered: bool) -> None:
        """Count one request less; `answered`: it ran, so requests sent before it run too. O(1) amortised."""
        self.in_flight -= 1
        assert self.in_flight >= 0
        if answered:
            self._seen(number)
        elif number in self._unseen:
            self._streams -= self._unseen.pop(number)

    def observed(self, *, running: int, waiting: int) -> None:
        """Adapt the limit to the load that the engine reports, requests of other senders included. O(1)."""
        assert running >= 0 and waiting >= 0, (running, waiting)
        short, self._short = self._short, False
        self.is_observed = True
        if self._fixed is not None:
            return
        excess = waiting - self._target
        self._hits = self._hits // 2 if excess > 0 else min(_MOST_HITS, self._hits + 1)
        if excess > 0 and not self._unseen and self.in_flight - running > self._target:
            self._leap = 0
        if excess > 0:
            self._ramping = False
            # The share of the excess that may be ours.
            total = max(running + waiting, self.in_flight)
            self.size = max(1, self.in_flight - -(-excess * self.in_flight // total))
            return
        self.size = max(self.size, self.in_flight)
        # An engine that reports far fewer requests than it was sent does not report its capacity.
        if short and not waiting and self.in_flight <= running + _MOST_GROWTH:
            self.size += min(self.size, _MOST_GROWTH) if self._ramping else max(1, self.size // 8)
        elif not short and self.size > max(_FIRST, 2 * self.in_flight):
            # A limit learnt under high load decays under low load, or the next peak would begin with a
            # queue in the engine.
            self.size -= max(1, self.size // 8)
            self._ramping = True

    def unobserved(self) -> None:
        """Fall back to first bytes: the engine no longer reports its load."""
        self.is_observed = False

    def restart(self) -> None:
        """Forget what was learnt, for a restarted engine; requests in flight are counted until they end."""
        self._restart()

    def _seen(self, number: int) -> None:
        """Record that request `number` runs, and those sent before it."""
        unseen = self._unseen
        while unseen:
            first = next(iter(unseen))
            if first > number:
                return
            self._streams -= unseen.pop(first)

"""How many requests an engine may have at once, learnt from what it shows: observations in, size out.

The first byte of an answer says that its request runs, and, since engines admit in order, that those
sent before it do. What runs is not the engine's queue; what is left is, and shall be short and never
empty while somebody waits. Answers in one piece show no first byte, so the engine is also asked how
many run and wait, and what it says goes before what is seen: some engines send a byte before the
request runs. While it does not say, what is seen must do.
"""

from collections import OrderedDict

# Requests in the engine's queue: one for the place that comes free now, one for the next.
TARGET = 2
# Where to begin; doubled at each look while the engine has no queue.
_FIRST = 8
# At most so many more between two looks: what is sent too much is in the engine's order, not in ours.
_MOST_GROWTH = 64
# An engine that shows neither numbers nor first bytes may be sent so many answers in one piece more
# than are known to run. To starve it would be worse than to leave it a queue.
BLIND = 64
# First bytes over which the shortest queue is sought before the allowance shrinks.
_PERIOD = 16
_MOST_ALLOWED = 256


class ConcurrencyLimit:
    """Counts what is in flight at one engine, and says whether one more may be sent.

    `fixed` is that number set by the operator; nothing is learnt then.
    """

    def __init__(self, *, fixed: int | None = None, target: int = TARGET) -> None:
        assert target >= 1 and (fixed is None or fixed >= 1), (target, fixed)
        self.in_flight = 0
        self.most_in_flight = 0  # ever: what U of the bound counts
        self._fixed = fixed
        self._target = target
        self._numbers = 0
        self._unseen: OrderedDict[int, bool] = OrderedDict()  # not known to run; whether it streams
        self._streams = 0  # of these
        self._restart()

    def _restart(self) -> None:
        self.size = self._fixed or _FIRST
        self.is_observed = False
        # Beyond the size before the next look, while all seem to run; 0 once they seemed to and did not.
        self._leap = _MOST_GROWTH
        self._allowance = self._target
        self._shortest: int | None = None
        self._starts = 0
        self._ramping = True
        self._short = False  # somebody was turned away since the last change

    @property
    def has_room(self) -> bool:
        """Whether one more may be sent. O(1)."""
        if self._fixed is not None:
            return self.in_flight < self._fixed
        if self.is_observed:
            return self.in_flight < (self.size if self._unseen else self.size + self._leap)
        if not self._unseen:  # all run: the engine's queue is empty
            return True
        return self._streams < self._allowance and len(self._unseen) - self._streams < BLIND

    def turn_away(self) -> None:
        """Somebody waits for room."""
        self._short = True

    def sent(self, *, streams: bool) -> int:
        """One more is in flight; the number to call it by. O(1)."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._numbers += 1
        self._unseen[self._numbers] = streams
        self._streams += streams
        return self._numbers

    def started(self, number: int) -> None:
        """Its first byte has come. O(1) amortised."""
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
        """It is gone; `answered`: having run, so that those sent before it run. O(1) amortised."""
        self.in_flight -= 1
        assert self.in_flight >= 0
        if answered:
            self._seen(number)
        elif number in self._unseen:
            self._streams -= self._unseen.pop(number)

    def observed(self, *, running: int, waiting: int) -> None:
        """The engine says how many requests it has, those of others included. O(1)."""
        assert running >= 0 and waiting >= 0, (running, waiting)
        short, self._short = self._short, False
        self.is_observed = True
        if self._fixed is not None:
            return
        excess = waiting - self._target
        if excess > 0 and not self._unseen and self.in_flight - running > self._target:
            self._leap = 0
        if excess > 0:
            self._ramping = False
            # Of what is too much, the part that may be ours.
            total = max(running + waiting, self.in_flight)
            self.size = max(1, self.in_flight - -(-excess * self.in_flight // total))
            return
        self.size = max(self.size, self.in_flight)
        if short and not waiting:
            self.size += min(self.size, _MOST_GROWTH) if self._ramping else max(1, self.size // 8)
        elif not short and self.size > max(_FIRST, 2 * self.in_flight):
            # What was learnt in a rush is forgotten in the calm, or the next rush would begin with
            # a queue in the engine.
            self.size -= max(1, self.size // 8)
            self._ramping = True

    def unobserved(self) -> None:
        """The engine has not said for a while: what is seen must do."""
        self.is_observed = False

    def restart(self) -> None:
        """The engine begins anew; what was sent to the old one is still counted until it ends."""
        self._restart()

    def _seen(self, number: int) -> None:
        """It runs, and so do those sent before."""
        unseen = self._unseen
        while unseen:
            first = next(iter(unseen))
            if first > number:
                return
            self._streams -= unseen.pop(first)

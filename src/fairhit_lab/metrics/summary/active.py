"""The time in which every client of the run is active, that is has a request waiting or running.

Jain's index is taken over the service received in it. The time begins when the last client
appears. Afterwards it is every instant at which no client is missing.
"""

from bisect import bisect_left
from collections.abc import Callable

from fairhit_lab.events import Decode

# The history is pruned when it is this long.
LONG = 4096


class AllActive:
    """Counts the passes and admissions while all clients are active.

    A pass counts if all clients were active just before it ended; at one instant, passes end before requests
    arrive or are cancelled (DESIGN 6.3). An admission counts if all clients are active just after the
    arrivals of its instant. A run of passes is reported at its end, so changes are kept until then.
    """

    __slots__ = (
        "_active",
        "_inside_us",
        "_known",
        "_long",
        "_settled",
        "changes_us",
        "epoch",
        "now",
    )

    def __init__(self, settled_us: Callable[[], int]) -> None:
        self._settled = settled_us  # no pass that is still to be reported ended before that
        self._known = 0
        self._active = 0
        # It begins at the first, ends at the second, ...; nothing lies in it while there is none.
        self.changes_us: list[int] = []
        self._inside_us = 0  # of intervals that were dropped from the history
        self._long = LONG
        self.epoch = 0  # what was counted in an earlier one does not count any more
        self.now = False

    def appear(self) -> None:
        """A client is seen for the first time, not yet active: all before was without it. O(1)."""
        self._known += 1
        self.epoch += 1
        self.changes_us.clear()
        self._inside_us = 0
        self.now = False

    def begin(self, t_us: int) -> None:
        """Count one more active client. O(1) amortised."""
        self._active += 1
        assert self._active <= self._known
        if self._active == self._known:
            self.now = True
            self._change(t_us)

    def end(self, t_us: int) -> None:
        """Count one active client less. O(1) amortised."""
        assert self._active > 0
        if self._active == self._known and self.now:
            self.now = False
            self._change(t_us)
        self._active -= 1

    def _change(self, t_us: int) -> None:
        changes = self.changes_us
        if changes and changes[-1] == t_us:
            changes.pop()  # out and in again at one instant is no change
            return
        changes.append(t_us)
        if len(changes) > self._long:
            self._forget()

    def _forget(self) -> None:
        """Drop the intervals that ended before anything still to be reported. O(history)."""
        old = bisect_left(self.changes_us, self._settled()) // 2 * 2
        dropped = self.changes_us[:old]
        self._inside_us += sum(dropped[1::2]) - sum(dropped[::2])
        del self.changes_us[:old]
        self._long = max(LONG, 2 * len(self.changes_us))

    def passes_inside(self, run: Decode) -> int:
        """Number of passes of `run` while all clients were active. O(1) if nothing changed meanwhile."""
        changes = self.changes_us
        if not changes:
            return 0
        first_us = run.t_us if run.passes == 1 else run.end_us(0)
        if changes[-1] < first_us:
            return run.passes if self.now else 0
        inside, begin = 0, 0
        place = bisect_left(changes, first_us)
        while begin < run.passes:
            # Those up to the next change share the state that the changes before it made.
            end = run.passes
            if place < len(changes):
                end = ended_by(run, changes[place], begin)
            if place % 2:
                inside += end - begin
            begin, place = end, place + 1
        return inside

    def length_us(self, end_us: int) -> int:
        """Total time with all clients active, up to `end_us`. O(history)."""
        changes = self.changes_us if not self.now else [*self.changes_us, end_us]
        return self._inside_us + sum(changes[1::2]) - sum(changes[::2])


def ended_by(run: Decode, t_us: int, low: int = 0) -> int:
    """Number of passes of `run` that had ended at `t_us`, at least `low`. O(log passes)."""
    high = run.passes
    while low < high:
        middle = (low + high) // 2
        if run.end_us(middle) <= t_us:
            low = middle + 1
        else:
            high = middle
    return low

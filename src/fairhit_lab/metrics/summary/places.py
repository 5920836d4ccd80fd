"""Position of a request, and waiting and running requests of a worker, while the summary needs them."""

from collections.abc import Mapping

from fairhit.core.request import ClientId
from fairhit_lab.metrics.gaps import PairGaps, WorkerGaps
from fairhit_lab.metrics.summary.report import NEVER
from fairhit_lab.metrics.summary.tally import Tally

NO_COUNTS: Mapping[ClientId, int] = {}


class AtWorker:
    """A worker: its waiting and running requests, and the passes that are not yet booked."""

    __slots__ = (
        "counts",
        "epoch",
        "gaps",
        "idle_since_us",
        "idle_us",
        "inside",
        "passes",
        "reported_us",
        "running",
        "waiting",
    )

    def __init__(self, gaps: WorkerGaps, idle_us: int = 0) -> None:
        self.waiting = 0
        self.running = 0
        self.counts: Mapping[ClientId, int] = NO_COUNTS  # of the passes that are not yet booked
        self.passes = 0
        self.inside = 0  # of them, while all clients were active
        self.epoch = 0
        self.reported_us = 0  # no pass of it that ended before that is still to be reported
        self.gaps = gaps
        self.idle_us = idle_us  # something waiting and nothing running
        self.idle_since_us: int | None = None

    def watch_idle(self, t_us: int) -> None:
        """Update the idle time after a change of waiting or running requests. O(1)."""
        if self.waiting and not self.running:
            if self.idle_since_us is None:
                self.idle_since_us = t_us
        elif self.idle_since_us is not None:
            self.idle_us += t_us - self.idle_since_us
            self.idle_since_us = None

    def book(self, tallies: Mapping[ClientId, Tally], epoch: int) -> None:
        """Add the outputs of the passes to the clients that they belong to. O(clients that ran)."""
        passes, counts = self.passes, self.counts
        for client, tokens in counts.items():
            tallies[client].output_len += tokens * passes
        if self.inside and self.epoch == epoch:
            for client, tokens in counts.items():
                tallies[client].inside_since(epoch).output_len += tokens * self.inside
        if self.gaps.compares:
            self.gaps.serve_all(counts, passes)
        self.passes = self.inside = 0

    def idle_by(self, end_us: int) -> int:
        """Idle time until `end_us`. O(1)."""
        under_way_us = 0 if self.idle_since_us is None else end_us - self.idle_since_us
        return self.idle_us + under_way_us


class SharedQueue:
    """The one queue of all workers: something there is work for every worker that is up."""

    __slots__ = ("_up", "_waiting", "gaps")

    def __init__(self, gaps: WorkerGaps) -> None:
        self.gaps = gaps  # over all workers
        self._up: dict[int, AtWorker] = {}
        self._waiting = 0

    def come(self, number: int, at: AtWorker, t_us: int) -> None:
        """A worker is up, with nothing of its own. O(1)."""
        self._up[number] = at
        at.waiting = int(self._waiting > 0)  # all that is there counts as one
        at.watch_idle(t_us)

    def go(self, number: int) -> None:
        """A worker is not up any more. O(1)."""
        self._up.pop(number, None)

    def wait(self, flight: "Flight", t_us: int) -> None:
        """Add `flight` to the queue. O(1), or O(workers) if it is the only one."""
        assert not flight.queued
        flight.queued = True
        self.gaps.wait(flight.tally.client)
        self._waiting += 1
        if self._waiting == 1:
            self._watch(1, t_us)

    def leave(self, flight: "Flight", t_us: int) -> None:
        """Remove `flight` from the queue, if it is there. O(1), or O(workers) if it was the only one."""
        if flight.queued:
            flight.queued = False
            self.gaps.leave(flight.tally.client)
            self._waiting -= 1
            if not self._waiting:
                self._watch(-1, t_us)

    def _watch(self, change: int, t_us: int) -> None:
        for at in self._up.values():
            at.waiting += change
            at.watch_idle(t_us)


class WorkerTable(dict[int, AtWorker]):
    """Workers by number, and the queue that they share, if any; `sharing` workers exist from the start."""

    def __init__(self, pairs: PairGaps, *, sharing: int) -> None:
        super().__init__()
        self._pairs = pairs
        self.queue = SharedQueue(WorkerGaps(pairs, None)) if sharing else None
        for number in range(sharing):
            self.come(number, 0)

    def new(self, number: int) -> AtWorker:
        """Add a worker that no event has named before."""
        self[number] = at = AtWorker(WorkerGaps(self._pairs, number))
        return at

    def come(self, number: int, t_us: int) -> None:
        """Record that worker `number` is up. O(1)."""
        if self.queue is not None:
            self.queue.come(number, self.get(number) or self.new(number), t_us)

    def go(self, number: int, t_us: int) -> None:
        """Record that worker `number` is down with all its requests; book its passes. O(backlogged^2)."""
        before = self[number]
        if self.queue is not None:
            self.queue.go(number)
        before.gaps.close()
        before.running = before.waiting = 0
        before.watch_idle(t_us)
        self[number] = AtWorker(WorkerGaps(self._pairs, number), before.idle_us)

    def settled_us(self) -> int:
        """The time before which every pass is reported. O(workers)."""
        return min([at.reported_us for at in self.values() if at.running], default=NEVER)


class Flight:
    """A request from its dispatch to its end."""

    __slots__ = (
        "at", "first_us", "input_len", "program", "queued", "running", "start_us", "tally",
    )  # fmt: skip

    def __init__(self, tally: Tally, start_us: int, program: int | None) -> None:
        self.tally = tally
        self.start_us = start_us
        self.program = program
        self.first_us = start_us
        self.input_len = 0
        self.at: AtWorker | None = None  # where it waits or runs
        self.running = False
        self.queued = False  # it waits for whichever worker takes it

"""Queue of unassigned requests, which any worker may admit (central-dlpm).

Every worker's engine has every waiting request. The worker that admits a request, within its scheduling
pass, takes it, and it is removed from the others. So the event `dispatch` names no worker: it records that
the request is in the queue. The event `enqueue` follows with the admission.
"""

from collections.abc import Callable, Mapping

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.policy import Policy
from fairhit.core.request import Request, WorkerId
from fairhit.errors import QueueFull
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.events import PS_PER_US, Cancel, Dispatch, Observer
from fairhit_lab.sim.engines.interface import EngineJob, Pass, StepTime
from fairhit_lab.sim.intake import TraceTicket
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.replica import Replica


class UnassignedQueue:
    """Offers each ticket to all replicas that are up; the replica that admits it first keeps it."""

    def __init__(
        self,
        central: CentralDLPM,
        *,
        kernel: Kernel,
        emit: Observer,
        name: Callable[[int], WorkerId],
    ) -> None:
        self.central = central
        central.claimed = self._claimed
        self._kernel = kernel
        self._emit = emit
        self._name = name
        self._up: dict[int, Replica] = {}
        self._offers: dict[Request, tuple[TraceTicket, dict[int, EngineJob]]] = {}

    def policy(self, cache: RadixTree | BlockCache, number: int) -> Policy:
        """Make the policy of replica `number`, added with `cache`."""
        return self.central.add_worker(self._name(number), cache)

    def add_worker(self, replica: Replica) -> None:
        """Add a replica, whose engine uses `policy`, and offer it all waiting requests."""
        self._up[replica.number] = replica
        for ticket, jobs in self._offers.values():
            jobs[replica.number] = job = ticket.job_at(replica.number)
            replica.host.enqueue(job)
        replica.wake()

    def remove_worker(self, number: int) -> Mapping[Request, int]:
        """Remove a replica; what was offered to it waits at the others. See `CentralDLPM.remove_worker`."""
        del self._up[number]
        for _, jobs in self._offers.values():
            del jobs[number]
        return self.central.remove_worker(self._name(number))

    def offer(self, ticket: TraceTicket) -> None:
        """Offer the ticket to all replicas, of which at least one is up. Raises QueueFull. O(workers)."""
        request = ticket.request
        self._emit(Dispatch(self._kernel.now_us, None, request.id, request.client))
        jobs = {number: ticket.job_at(number) for number in self._up}
        self._enqueue(jobs)
        self._offers[request] = (ticket, jobs)
        ticket.job = next(iter(jobs.values()))  # it may be cancelled: see `withdraw`
        for replica in list(self._up.values()):  # the first one woken may take it
            replica.wake()

    def withdraw(self, ticket: TraceTicket) -> bool:
        """Remove a cancelled ticket; False if a worker has admitted it. O(workers)."""
        offered = self._offers.pop(ticket.request, None)
        if offered is None:
            return False
        for number, job in offered[1].items():
            self._up[number].host.cancel(job)
        request = ticket.request
        self._emit(Cancel(self._kernel.now_us, None, request.id, request.client))
        return True

    def step_time(self, inner: StepTime, number: int) -> StepTime:
        """Extend `inner` by the time for which the worker waits for an answer."""
        return _Blocked(inner, self, number)

    def blocked_us(self, number: int) -> int:
        """Return how long replica `number` waits for the answer to its last scheduling pass."""
        return self.central.blocked_us(self._name(number), self._kernel.now_us)

    def _enqueue(self, jobs: dict[int, EngineJob]) -> None:
        enqueued: list[int] = []
        try:
            for number, job in jobs.items():
                self._up[number].host.enqueue(job)
                enqueued.append(number)
        except QueueFull:
            assert not enqueued, "one queue accepts what all accept"
            raise

    def _claimed(self, request: Request, worker: WorkerId) -> int | None:
        """Give `request` to the worker that admits it; the outputs charged at a worker that failed."""
        ticket, jobs = self._offers.pop(request)
        taker = int(worker)
        for number, job in jobs.items():
            if number != taker:
                self._up[number].host.cancel(job)
        ticket.job = jobs[taker]
        self._up[taker].take(ticket.job)
        return ticket.paid


class _Blocked:
    """A StepTime that adds to each pass the wait for the central policy's answer."""

    def __init__(self, inner: StepTime, queue: UnassignedQueue, number: int) -> None:
        self._inner = inner
        self._queue = queue
        self._number = number

    @property
    def alike(self) -> bool:
        """False: the wait differs from pass to pass."""
        return False

    def pass_ps(self, work: Pass) -> int:
        """Return the time of the step and of the wait before it."""
        return self._inner.pass_ps(work) + self._queue.blocked_us(self._number) * PS_PER_US

    def growth_ps(self, work: Pass) -> int:
        """See `StepTime`."""
        return self._inner.growth_ps(work)

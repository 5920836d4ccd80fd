"""Requests that wait for a worker to take them, instead of waiting at one (central-dlpm).

All workers' hosts have every waiting request. The one that admits it takes it, in the middle of its
look, and the others forget it. So `dispatch` names no worker: it tells that the request is in the
queue; and `enqueue` comes with the admission, where that is.
"""

from collections.abc import Callable, Mapping

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.policy import LateBound, Policy
from fairhit.core.request import Request, WorkerId
from fairhit.errors import QueueFull
from fairhit_lab.events import PS_PER_US, Cancel, Dispatch, Observer
from fairhit_lab.sim.engines.interface import EngineJob, Pass, StepTime
from fairhit_lab.sim.intake import TraceTicket
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.replica import Replica


class LateBinding:
    """Offers tickets to the replicas that are up; `taken` hears which job became of one."""

    def __init__(
        self,
        central: LateBound,
        *,
        kernel: Kernel,
        emit: Observer,
        name: Callable[[int], WorkerId],
        taken: Callable[[TraceTicket, EngineJob], None],
    ) -> None:
        self.central = central
        central.claimed = self._claimed
        self._kernel = kernel
        self._emit = emit
        self._name = name
        self._taken = taken
        self._up: dict[int, Replica] = {}
        self._offers: dict[Request, tuple[TraceTicket, dict[int, EngineJob]]] = {}

    def policy(self, cache: RadixTree | BlockCache, number: int) -> Policy:
        """Of replica `number`, which comes up with `cache`."""
        return self.central.add_worker(self._name(number), cache)

    def add_worker(self, replica: Replica) -> None:
        """It is up, with a host over `policy`, and is offered all that waits."""
        self._up[replica.number] = replica
        for ticket, jobs in self._offers.values():
            jobs[replica.number] = job = self._job(ticket, replica.number)
            replica.host.enqueue(job)
        replica.wake()

    def remove_worker(self, number: int) -> Mapping[Request, int]:
        """It is gone, and what it was offered waits elsewhere. See `LateBound.remove_worker`."""
        del self._up[number]
        for _, jobs in self._offers.values():
            del jobs[number]
        return self.central.remove_worker(self._name(number))

    def offer(self, ticket: TraceTicket) -> None:
        """It waits for whoever takes it; somebody is up. Raises QueueFull. O(workers)."""
        request = ticket.request
        self._emit(Dispatch(self._kernel.now_us, None, request.id, request.client))
        jobs = {number: self._job(ticket, number) for number in self._up}
        self._enqueue(jobs)
        self._offers[request] = (ticket, jobs)
        ticket.job = next(iter(jobs.values()))  # it may be cancelled: see `withdraw`
        for replica in list(self._up.values()):  # the first one woken may take it
            replica.wake()

    def withdraw(self, ticket: TraceTicket) -> bool:
        """Its caller is gone; False if it is at a worker already. O(workers)."""
        offered = self._offers.pop(ticket.request, None)
        if offered is None:
            return False
        for number, job in offered[1].items():
            self._up[number].host.cancel(job)
        request = ticket.request
        self._emit(Cancel(self._kernel.now_us, None, request.id, request.client))
        return True

    def step_time(self, inner: StepTime, number: int) -> StepTime:
        """As `inner`, and the worker computes nothing while it waits for an answer."""
        return _Blocked(inner, self, number)

    def blocked_us(self, number: int) -> int:
        """How long replica `number` waits for the answer to the look it just had."""
        return self.central.blocked_us(self._name(number), self._kernel.now_us)

    def _enqueue(self, jobs: dict[int, EngineJob]) -> None:
        enqueued: list[int] = []
        try:
            for number, job in jobs.items():
                self._up[number].host.enqueue(job)
                enqueued.append(number)
        except QueueFull:
            assert not enqueued, "what one takes, all take"
            raise

    def _claimed(self, request: Request, worker: WorkerId) -> int | None:
        """A look under way there admitted it; the outputs it paid for at a worker that failed."""
        ticket, jobs = self._offers.pop(request)
        taker = int(worker)
        for number, job in jobs.items():
            if number != taker:
                self._up[number].host.cancel(job)
        self._taken(ticket, jobs[taker])
        self._up[taker].take(jobs[taker])
        return ticket.paid

    @staticmethod
    def _job(ticket: TraceTicket, number: int) -> EngineJob:
        return ticket.job_at(number)


class _Blocked:
    """Implements StepTime."""

    def __init__(self, inner: StepTime, binding: LateBinding, number: int) -> None:
        self._inner = inner
        self._binding = binding
        self._number = number

    @property
    def alike(self) -> bool:
        """No: before each pass with a look comes a wait."""
        return False

    def pass_ps(self, work: Pass) -> int:
        """The wait for the answer that led to the pass, and the pass."""
        return self._inner.pass_ps(work) + self._binding.blocked_us(self._number) * PS_PER_US

    def growth_ps(self, work: Pass) -> int:
        """See `StepTime`."""
        return self._inner.growth_ps(work)

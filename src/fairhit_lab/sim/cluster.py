"""A simulated cluster: a router in front of replicas, fed by a trace; observers receive every event."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fairhit.core.policy import Router, Timed
from fairhit.core.request import Request, WorkerId
from fairhit.core.service import Weights
from fairhit.errors import ConfigError, QueueFull
from fairhit_lab.baselines import CENTRAL_ROUTERS, FLEET
from fairhit_lab.baselines.rpm import RateLimit
from fairhit_lab.events import Dispatch, Observer, Preempt, WorkerUpOrDown
from fairhit_lab.sim.config import SimConfig, WorkerChange
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.engines.profiles import Parts, make_engine
from fairhit_lab.sim.event_bus import EventBus
from fairhit_lab.sim.event_order import change_priority
from fairhit_lab.sim.hardware.step_time import EngineTime, parse_step_time
from fairhit_lab.sim.intake import OnStart, TraceIntake, TraceTicket
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.replica import Replica
from fairhit_lab.sim.routing.fleet_view import FleetView
from fairhit_lab.sim.routing.gateway_fleet import GatewayFleet, engine_config
from fairhit_lab.sim.routing.routing import central_router_of, router_of
from fairhit_lab.sim.routing.unassigned_queue import UnassignedQueue
from fairhit_lab.traces.trace import TraceRow


class Cluster:
    """A run of the settings `config` over the rows of a trace, sorted by arrival; call `run` once.

    `weights`, if given, are the config's; they learn those in the rows, so that the caller can read them.
    """

    def __init__(
        self,
        config: SimConfig,
        rows: Iterable[TraceRow],
        observers: Sequence[Observer] = (),
        *,
        weights: Weights | None = None,
        on_start: OnStart | None = None,
    ) -> None:
        self.config = config
        self.weights = Weights(config.weights) if weights is None else weights
        self.kernel = Kernel()
        # None with one queue for all: there a worker with free capacity takes the next request.
        self.router: Router | None = None
        if config.router not in CENTRAL_ROUTERS and config.router != FLEET:
            self.router = router_of(config, self.weights)
        self._timed = _timed(self.router)
        self.fleet = self._gateway_fleet() if config.router == FLEET else None
        self._emit = EventBus([*observers, *([self.fleet] if self.fleet else [])])
        if self.fleet:
            self.fleet.emit = self._emit
        self._emit_dispatch = self._emit.of[Dispatch]
        self.intake = TraceIntake(
            rows,
            kernel=self.kernel,
            cluster=self,
            emit=self._emit,
            gate=_gate(config),
            learn_weight=self._learn_weight,
            on_start=on_start,
        )
        self._parts = Parts(
            config=engine_config(config) if self.fleet else config,
            weights=self.weights,
            capacity=capacity_of(config),
            output_len=self.intake.output_len,
        )
        self._width = len(str(config.workers - 1))
        self.unassigned = self._unassigned_queue() if config.router in CENTRAL_ROUTERS else None
        # The router's view of the caches. With one worker there is nothing to decide, and the router is
        # not called.
        self.view: FleetView | None = None
        if config.workers > 1 and self.router:
            self.view = FleetView(kernel=self.kernel, delay_us=config.event_delay_us)
        self._up = 0  # number of workers that are up
        self._stranded: list[TraceTicket] = []  # sent while no worker was up
        self.replicas = [self._replica(number) for number in range(config.workers)]
        for number in range(config.replicas):
            self._add_worker(number)

    @property
    def capacity(self) -> int:
        """KV capacity M of each replica, in tokens."""
        return self._parts.capacity

    @property
    def now_us(self) -> int:
        """The simulation's clock, in microseconds."""
        return self.kernel.now_us

    def run(self) -> None:
        """Simulate until every request that can end has ended, or the kernel is stopped."""
        for position, change in enumerate(self.config.changes):
            self.kernel.at(change.time_us, change_priority(position), self._change, change)
        self.intake.read()
        self.kernel.run()
        if self.kernel.stopped:
            for replica in self.replicas:
                replica.catch_up()  # emit the events of the passes that have ended

    # -- called by the intake ------------------------------------------------------------------

    def fits_ever(self, request: Request) -> bool:
        """Return whether an empty worker has memory for the request; all workers are alike."""
        return self.replicas[0].host.fits_ever(request)

    def send(self, ticket: TraceTicket) -> None:
        """Route the request to a worker's queue. O(log workers) and the prefix match."""
        if not self._up:
            self._stranded.append(ticket)
            return
        if self.unassigned:
            self._offer(self.unassigned, ticket)
            return
        if self.fleet:
            self._arrive(self.fleet, ticket)
            return
        request = ticket.request
        number = self._route(request) if self.view else 0
        ticket.job = job = ticket.job_at(number)
        replica = self.replicas[number]
        replica.catch_up()
        self._emit_dispatch(self.kernel.now_us, number, request.id, request.client)
        try:
            replica.enqueue(job)
        except QueueFull:
            self._true_up(job)
            self.intake.reject(ticket, "queue-full", worker=number)

    def _route(self, request: Request) -> int:
        """Choose a worker for the request and return its number."""
        assert self.view and self.router
        matches = self.view.matches(request)
        worker = self.router.route(request, matches=matches)
        extend_len = max(1, request.input_len - matches.of(worker))
        self.router.dispatch(request, worker, extend_len=extend_len)
        self.view.sent(request, worker)
        return int(worker)

    def cancel(self, ticket: TraceTicket) -> None:
        """Cancel a request that was sent, unassigned or at its worker."""
        if self.unassigned and self.unassigned.withdraw(ticket):
            self.intake.ended(ticket, finished=False)
            return
        if self.fleet:
            if self.fleet.cancel(ticket):
                self.intake.ended(ticket, finished=False)
            return
        job = ticket.job
        assert job is not None
        self.replicas[job.worker].cancel(job)

    # -- called by replicas --------------------------------------------------------------------

    def _ended(self, job: EngineJob, finished: bool) -> None:
        if self._timed:
            self._report_times(self._timed, job, finished)
        self._true_up(job)
        if self.fleet and finished:
            self.fleet.ended(job)
        self.intake.ended(job.ticket, finished=finished)

    def _true_up(self, job: EngineJob) -> None:
        """Replace the service that the router assumed for the job, if it was called, by the true one."""
        if self.view and self.router:
            request, worker = job.request, self._name(job.worker)
            extend_len, output_len = job.extend_len, job.emitted
            self.router.true_up(request, worker, extend_len=extend_len, output_len=output_len)
            self.view.ended(request, worker)

    def _report_times(self, router: Timed, job: EngineJob, finished: bool) -> None:
        """Report the times of a finished job to a router that uses measured times."""
        if finished:
            assert job.first_us is not None
            router.served(
                job.request,
                self._name(job.worker),
                first_us=job.first_us,
                end_us=self.kernel.now_us,
                output_len=job.emitted,
            )

    # -- the gateway's queue -------------------------------------------------------------------

    def _gateway_fleet(self) -> GatewayFleet:
        for flag, value in (self.config.of("router") | self.config.of("central")).items():
            if value is not None:
                raise ConfigError(f"{flag}: router {FLEET} has no such setting")
        return GatewayFleet(
            self.config,
            weights=self.weights,
            kernel=self.kernel,
            name=self._name,
        )

    def _arrive(self, fleet: GatewayFleet, ticket: TraceTicket) -> None:
        try:
            fleet.arrive(ticket)
        except QueueFull:
            self.intake.reject(ticket, "queue-full")

    # -- unassigned requests --------------------------------------------------------------------------

    def _unassigned_queue(self) -> UnassignedQueue:
        return UnassignedQueue(
            central_router_of(self.config, self.weights),
            kernel=self.kernel,
            emit=self._emit,
            name=self._name,
        )

    def _offer(self, queue: UnassignedQueue, ticket: TraceTicket) -> None:
        try:
            queue.offer(ticket)
        except QueueFull:
            self.intake.reject(ticket, "queue-full")

    # -- workers -------------------------------------------------------------------------------

    def _change(self, change: WorkerChange) -> None:
        """A worker fails or joins."""
        if change.up:
            self._emit(WorkerUpOrDown(self.kernel.now_us, change.worker, up=True))
            waiting, self._stranded = self._stranded, []
        else:
            waiting = self._lose_worker(change.worker)
        for ticket in waiting:
            self.intake.again(ticket)
        if change.up:  # after the arrivals, which its first scheduling pass is to see
            self._add_worker(change.worker)

    def _lose_worker(self, number: int) -> list[TraceTicket]:
        """Remove a failed worker with its cache and queue; return its requests, to be dispatched again."""
        replica = self.replicas[number]
        jobs = replica.fail()
        name = self._name(number)
        if self.router:
            self.router.remove_worker(name)
        paid = self.unassigned.remove_worker(number) if self.unassigned else {}
        if self.view:
            self.view.remove_worker(name)
        self._up -= 1
        self._emit(WorkerUpOrDown(self.kernel.now_us, number, up=False))
        for job in jobs:
            request = job.request
            self._emit(
                Preempt(self.kernel.now_us, number, request.id, request.client, replica.steps)
            )
        tickets: list[TraceTicket] = [job.ticket for job in jobs]
        for ticket, job in zip(tickets, jobs, strict=True):
            ticket.lost(paid.get(job.request))
        return self.fleet.remove_worker(number) if self.fleet else tickets

    def _add_worker(self, number: int) -> None:
        """Add a worker that has joined, with an empty queue and cache."""
        parts = (
            replace(self._parts, policy=self.unassigned.policy) if self.unassigned else self._parts
        )
        engine = make_engine(parts, number)
        self.replicas[number].host = engine.host
        if self.view:
            self.view.add_worker(self._name(number), engine.cache)
        self._up += 1
        if self.router:
            self.router.add_worker(self._name(number))
        if self.unassigned:
            self.unassigned.add_worker(self.replicas[number])
        if self.fleet:
            self.fleet.add_worker(self.replicas[number], engine.cache)

    def _replica(self, number: int) -> Replica:
        step_time = _step_time(self.config, number)
        return Replica(
            number,
            kernel=self.kernel,
            host=make_engine(self._parts, number).host,
            step_time=self.unassigned.step_time(step_time, number)
            if self.unassigned
            else step_time,
            bus=self._emit,
            ended=self._ended,
            skips=self.config.skips and self.fleet is None,  # first bytes are seen when they come
        )

    def _name(self, number: int) -> WorkerId:
        """Return the worker's name: its number, padded with zeros so that names sort as numbers do."""
        return str(number).zfill(self._width)

    def _learn_weight(self, client: str, weight: int) -> None:
        """Learn a client's weight from a row, unless the settings have one."""
        if client not in self.config.weights:
            self.weights.learn(client, weight)


def _gate(config: SimConfig) -> RateLimit | None:
    given: dict[str, Any] = {
        "limit": config.rpm_limit,
        "window_us": config.rpm_window_us,
        "mode": config.rpm_mode,
    }
    settings = {key: value for key, value in given.items() if value is not None}
    if config.scheduler == "rpm":
        return RateLimit(**settings)
    if settings:
        raise ConfigError(f"--rpm-...: only with --scheduler rpm, got {config.scheduler!r}")
    return None


def _timed(router: object) -> Timed | None:
    return router if isinstance(router, Timed) else None


def _step_time(config: SimConfig, number: int) -> EngineTime:
    return parse_step_time(
        config.step_time,
        constants=config.constants,
        engine=config.host,
        jitter=config.jitter,
        rng=Random(f"{config.seed}/jitter/{number}"),
    )


def capacity_of(config: SimConfig) -> int:
    """KV capacity M of each replica, in tokens. Raises ConfigError if no setting determines it."""
    tokens = config.kv_tokens or _step_time(config, 0).kv_tokens
    if tokens is None:
        raise ConfigError("kv-tokens: needed, as linear step times do not determine it")
    return tokens

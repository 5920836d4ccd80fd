"""The gateway's queue in the simulator: the very `Dispatcher` that serves, in virtual time.

A request waits in the dispatcher until an engine has capacity, as the dispatcher has learnt it. What the
gateway would do to an engine, and see of it, is done here: it sends requests, sees first bytes, outputs and
ends, reads the engine's load a few times a second, and follows the events of its cache. Each takes
`transit_us`; cache events take `event_delay_us`. Decisions are made one after the other, in `decision_us`
each.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.costs import ContextCost
from fairhit.core.engine_time import prices_of
from fairhit.core.fair_queue import FairQueue
from fairhit.core.policy import KeepsLedger
from fairhit.core.request import Request, RequestId, Unit, WorkerId
from fairhit.core.service import Weights
from fairhit.dispatch import MAX_HOLD_US, Dispatcher, QueueRules, Ticket, TicketState, Usage
from fairhit.errors import ConfigError, EngineError, NotFound
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex
from fairhit.settings.declaration import settings_of
from fairhit_lab.events import Cancel, Dispatch, Event, FirstToken, Observer
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.engines.interface import EngineJob, ReportsMemory
from fairhit_lab.sim.event_order import GATEWAY
from fairhit_lab.sim.intake import TraceTicket
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.memory.block_hashes import BlockHashes
from fairhit_lab.sim.replica import Replica
from fairhit_lab.sim.routing.fleet_view import CacheFollower

# Tokens of a unit of the index.
BLOCK_LEN = 16
# The gateway's default `--load-interval-secs`: readings of a busy engine's load, and reports of outputs.
LOAD_INTERVAL_US = 250_000
# Prompts whose hashes are kept: those of requests under way, and of what engines evict.
_MOST_HASHED = 4096
_NO_LIMIT = 10**9
# Settings of a scheduler that the gateway has, too. `cost` is no setting of a scheduler alone.
_QUEUE_SETTINGS = ("quantum", "cost", "overdraft", "near", "prepay")


def engine_config(config: SimConfig) -> SimConfig:
    """Return the settings of the engines behind the gateway: its scheduler's are not theirs."""
    given: dict[str, Any] = {
        name: None for name, each in settings_of(SimConfig).items() if each.of == "scheduler"
    }
    return replace(config, scheduler=config.engine_scheduler or "fcfs", cost=None, **given)


class _Flight:
    """A request until its end; one more of `sends` voids what is on its way from earlier ones."""

    __slots__ = ("job", "own", "sends", "sent_us", "ticket")

    def __init__(self, ticket: TraceTicket) -> None:
        self.ticket = ticket
        self.own: Ticket | None = None  # the dispatcher's
        self.job: EngineJob | None = None  # in an engine
        self.sends = 0
        self.sent_us = 0


class GatewayFleet:
    """Sends requests to replicas by the decisions of a `Dispatcher`, and tells it what they do."""

    def __init__(
        self,
        config: SimConfig,
        *,
        weights: Weights,
        kernel: Kernel,
        name: Callable[[int], WorkerId],
    ) -> None:
        self._config = config
        self._kernel = kernel
        self.emit: Observer = _ignore  # set before the first request
        self._name = name
        given = {key: getattr(config, key) for key in _QUEUE_SETTINGS}
        for flag, value in config.of("scheduler").items():
            if value is not None and flag not in _QUEUE_SETTINGS:
                raise ConfigError(
                    f"{flag}: the queue of router {config.router} has no such setting"
                )
        rules = QueueRules(
            scheduler=config.scheduler, weights=weights,
            queue_size=_NO_LIMIT, queue_total=_NO_LIMIT, **given,
            max_hold_us=MAX_HOLD_US if config.max_hold_us is None else config.max_hold_us,
        )  # fmt: skip
        self._index = PrecisePrefixIndex(block_len=BLOCK_LEN)
        self.dispatcher = Dispatcher(
            router=D2LPM(), index=self._index, rules=rules,
            max_in_flight=_NO_LIMIT, on_ready=self._send, on_hold=self._hold,
        )  # fmt: skip
        self._blocks = _CachedBlocks(self._index)
        self._decision_us = 100 if config.decision_us is None else config.decision_us
        self._transit_us = 100 if config.transit_us is None else config.transit_us
        self._free_us = 0  # when the last decision was made
        self.decisions = 0
        self.delayed_us = 0  # the time that engines waited for these decisions, all together
        self._replicas: dict[int, Replica] = {}
        self._followers: dict[int, CacheFollower] = {}
        self._flights: dict[RequestId, _Flight] = {}
        self._read_soon: set[int] = set()
        self.takes: Mapping[type, Callable[..., None]] = {
            **dict.fromkeys(get_args(Event), _ignore),
            FirstToken: self._first_token,
        }

    def __call__(self, event: Event, /) -> None:
        """Observe nothing else than by `takes`."""

    # -- workers

    def add_worker(self, replica: Replica, cache: RadixTree) -> None:
        """Add an engine that has come up with an empty cache."""
        number, name = replica.number, self._name(replica.number)
        self._replicas[number] = replica
        self._fail(self.dispatcher.engine_up(name))
        self._index.learn(name, Knowledge.COMPLETE)
        delay_us = self._config.event_delay_us
        follower = CacheFollower(self._blocks, name, self._kernel, delay_us)
        self._followers[number] = follower
        cache.listen(follower)

    def remove_worker(self, number: int) -> list[TraceTicket]:
        """Remove a failed engine; return the requests that the gateway cannot send to another one."""
        name = self._name(number)
        self._followers.pop(number).stopped = True
        del self._replicas[number]
        self._blocks.forget(name)
        engine = self.dispatcher.engines[name]
        begun = [own for own in engine.tickets if own.state is TicketState.STARTED]
        stuck = self.dispatcher.engine_down(name)
        begun.sort(key=lambda own: own.request.order)
        return self._fail([own for own in (*stuck, *begun) if own.worker in {name, ""}])

    # -- requests

    def arrive(self, ticket: TraceTicket) -> None:
        """Take a request, while an engine is up. Raises QueueFull."""
        request = ticket.request
        flight = _Flight(ticket)
        prompt = tuple(self._blocks.keys(Runs.of(request.prompt), request.input_len - 1))
        self.emit(Dispatch(self._kernel.now_us, None, request.id, request.client))
        self._flights[request.id] = flight
        ticket.job = ticket.job_at(0)  # so that it is cancelled here
        asked = replace(request, prompt=prompt)
        self._index.advance(self._kernel.now_us)
        try:
            flight.own = self.dispatcher.arrive(asked, model=None, text_len=0, streams=True)
        except Exception:
            del self._flights[request.id]
            raise
        if flight.own.state is TicketState.WAITING:
            self._send(flight.own)

    def cancel(self, ticket: TraceTicket) -> bool:
        """Cancel a request; False if an engine has it, which ends it."""
        flight = self._flights.pop(ticket.request.id)
        assert flight.own is not None
        now_us = self._kernel.now_us
        if flight.job is not None:
            self.dispatcher.cancelled(flight.own, ran_us=max(1, now_us - flight.sent_us))
            self._replicas[flight.job.worker].cancel(flight.job)
            return False
        self.dispatcher.cancelled(flight.own, ran_us=0)
        self.emit(Cancel(now_us, None, ticket.request.id, ticket.request.client))
        return True

    def ended(self, job: EngineJob) -> None:
        """Receive the last output of a job. The dispatcher receives it once it is across."""
        flight = self._flights.get(job.request.id)
        if flight is not None:
            self._later(self._transit_us, self._finished, flight, job)

    # -- from the dispatcher to engines

    def _send(self, own: Ticket) -> None:
        """Send a request for which the dispatcher has chosen an engine."""
        flight = self._flights[own.request.id]
        flight.own = own
        flight.sends += 1
        now_us = self._kernel.now_us
        self._free_us = max(self._free_us, now_us) + self._decision_us
        flight.sent_us = self._free_us
        self.decisions += 1
        self.delayed_us += self._free_us - now_us
        self._later(self._free_us - now_us + self._transit_us, self._reach, flight, int(own.worker))

    def _hold(self, own: Ticket, wait_us: int) -> None:
        """Keep a request for an engine for some time; it may be taken meanwhile."""
        self._kernel.at(self._kernel.now_us + wait_us, GATEWAY, self.dispatcher.hold_over, own)

    def _reach(self, flight: _Flight, number: int) -> None:
        """A request has reached its engine."""
        replica = self._replicas[number]
        replica.catch_up()
        flight.job = flight.ticket.job = flight.ticket.job_at(number)
        replica.enqueue(flight.job)
        if number not in self._read_soon:
            self._read_soon.add(number)
            self._kernel.at(
                self._kernel.now_us + LOAD_INTERVAL_US, GATEWAY, self._read_load, number
            )

    # -- from engines to the dispatcher

    def _first_token(self, t_us: int, _: int, request: RequestId, __: str) -> None:
        flight = self._flights.get(request)
        if flight is not None:
            self._later(
                max(0, t_us - self._kernel.now_us) + self._transit_us, self._started, flight
            )

    def _started(self, flight: _Flight) -> None:
        if flight.own is not None and flight.own.state is TicketState.WAITING:
            self.dispatcher.started(flight.own)

    def _finished(self, flight: _Flight, job: EngineJob) -> None:
        own, request = flight.own, flight.ticket.request
        assert own is not None
        del self._flights[request.id]
        usage = Usage(request.input_len, job.emitted, request.input_len - job.extend_len)
        ran_us = max(1, self._kernel.now_us - flight.sent_us)
        self.dispatcher.finished(own, usage, ran_us=ran_us)

    def _read_load(self, number: int) -> None:
        """Read an engine's load, and the outputs that its requests have streamed."""
        replica, name = self._replicas.get(number), self._name(number)
        if replica is None:
            self._read_soon.discard(number)
            return
        replica.catch_up()
        running, waiting = replica.load()
        self._index.advance(self._kernel.now_us)
        for own in sorted(self.dispatcher.engines[name].tickets, key=lambda own: own.request.order):
            job = self._flights[own.request.id].job
            if job is not None and own.state is TicketState.STARTED:
                self.dispatcher.emitted(own, job.emitted)
        self._report_prices(name, replica.host.scheduler)
        free_len = None
        if isinstance(replica.host, ReportsMemory) and self._config.engine_reports != "load":
            free_len = replica.host.free_len
        self.dispatcher.observed(name, running=running, waiting=waiting, free_len=free_len)
        if self.dispatcher.engines[name].tickets:
            self._kernel.at(
                self._kernel.now_us + LOAD_INTERVAL_US, GATEWAY, self._read_load, number
            )
        else:
            self._read_soon.discard(number)

    def _report_prices(self, name: WorkerId, scheduler: FairQueue) -> None:
        """Read the prices that an engine with the plug-in has fitted to its passes."""
        if scheduler.fit is not None:
            assert isinstance(scheduler.policy, KeepsLedger)
            cost = scheduler.policy.cost.current
            assert isinstance(cost, ContextCost)
            self.dispatcher.queue.prices.report(name, prices_of(cost))

    # -- inside

    def _fail(self, lost: Sequence[Ticket]) -> list[TraceTicket]:
        """Report failed requests; return those that are not sent to another engine."""
        gone = []
        for own in lost:
            if own.state is TicketState.ENDED:
                continue
            flight = self._flights[own.request.id]
            flight.job, flight.sends = None, flight.sends + 1
            flight.ticket.job = flight.ticket.job_at(0)
            try:
                self.dispatcher.failed(own)
            except (EngineError, NotFound):
                del self._flights[own.request.id]
                flight.ticket.job = None
                gone.append(flight.ticket)
                continue
            if own.state is TicketState.WAITING:
                self._send(own)
        return gone

    def _later(
        self, wait_us: int, action: Callable[..., None], flight: _Flight, *arguments: object
    ) -> None:
        """Call `action(flight, *arguments)` after `wait_us`, unless the request is sent anew or ends."""
        now_us = self._kernel.now_us
        call = partial(self._if_current, action, flight, flight.sends)
        self._kernel.at(now_us + wait_us, GATEWAY, call, arguments)

    def _if_current(
        self,
        action: Callable[..., None],
        flight: _Flight,
        sends: int,
        arguments: tuple[object, ...],
    ) -> None:
        if flight.sends == sends and self._flights.get(flight.ticket.request.id) is flight:
            action(flight, *arguments)


class _CachedBlocks:
    """Translates changes of token trees into confirmed and withdrawn blocks of the index."""

    def __init__(self, index: PrecisePrefixIndex) -> None:
        self._index = index
        self._held: dict[WorkerId, set[int]] = {}
        self._hashes: OrderedDict[Runs, tuple[BlockHashes, list[int]]] = OrderedDict()

    def keys(self, tokens: Runs, length: int) -> list[int]:
        """Return the keys of the full blocks of tokens[:length]. O(blocks), more for new tokens."""
        hashes, keys = self._hashes_of(tokens)
        count = length // BLOCK_LEN
        if len(keys) < count:
            new = hashes.first(count)[len(keys) :]
            keys += [int.from_bytes(each[:8], "big") for each in new]
        return keys[:count]

    def _hashes_of(self, tokens: Runs) -> tuple[BlockHashes, list[int]]:
        """The hashes of tokens, and keys made of them; what a long run ends is hashed once for all tokens."""
        found = self._hashes.get(tokens)
        if found is not None:
            self._hashes.move_to_end(tokens)
            return found
        longest = max(range(len(tokens.runs)), key=lambda at: tokens.runs[at][2], default=0)
        head = Runs(tokens.runs[: longest + 1])
        known: list[bytes] = []
        if len(head) < len(tokens):
            known = self._hashes_of(head)[0].first(len(head) // BLOCK_LEN)
        found = BlockHashes(tokens, block_size=BLOCK_LEN, known=known), []
        self._hashes[tokens] = found
        if len(self._hashes) > _MOST_HASHED:
            self._hashes.popitem(last=False)
        return found

    def forget(self, worker: WorkerId) -> None:
        """Forget a worker, whose blocks the index has dropped."""
        self._held.pop(worker, None)

    def grew(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """See `CacheEvents`."""
        held = self._held.setdefault(worker, set())
        for block in self.keys(Runs.of(tokens), length):
            if block not in held:
                held.add(block)
                self._index.confirm(worker, block)

    def shrank(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """See `CacheEvents`."""
        held = self._held.setdefault(worker, set())
        kept = length // BLOCK_LEN
        for block in reversed(self.keys(Runs.of(tokens), len(tokens))[kept:]):
            if block in held:
                held.remove(block)
                self._index.withdraw(worker, block)

    def ended(self, request: Request) -> None:
        """See `CacheEvents`."""


def _ignore(*_: object) -> None:
    pass

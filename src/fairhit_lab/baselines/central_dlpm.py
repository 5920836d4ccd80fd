"""Centralised DLPM, the papers' strawman: arXiv:2501.14312v1, section 5.1, repaired.

One queue and one set of deficits q_i for all workers. Nothing is routed on arrival: a worker that has
room sends the changes of its tree, waits for the answer, and takes what DLPM would admit there.

    view      one worker's prefixes over the shared queue: DLPM's order as that worker sees it
    delta     the changes of its tree since it last asked, numbered and in order (baselines/tree_delta.py)
    blocked   from the delta to the answer the worker computes nothing

As it is blocked, its tree cannot change between its delta and its answer; so a view reads the
worker's tree itself, and the deltas, from which a copy could be kept (a test keeps one), are counted.
Repairs: deltas are ordered (A8.1); workers that ask at once are answered one after the other by one
scheduler, instead of racing for a lock (A8.4); outputs are charged up to the moment of each look.
Its bound is 2 (w_q * sum of M_w + w_e + Q), for one queue shares all memories.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.deficits import Deficits
from fairhit.core.policy import SyncCharges, nothing_pending
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.service import Cost, ServiceCost, Weights
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit_lab.baselines.tree_delta import HEADER_BYTES, TOKEN_BYTES, DeltaFeed


@dataclass(kw_only=True, slots=True)
class DeltaTraffic:
    """What being central has cost so far."""

    looks: int = 0  # of which each is a delta and an answer
    changes: int = 0  # of trees
    delta_bytes: int = 0
    answer_bytes: int = 0  # with the prompts, as tokens
    blocked_us: int = 0  # of all workers together


class CentralDLPM:
    """Late-bound: see `LateBound`. `round_trip_us` and `work_us` are what an answer takes.

    The defaults are a network's round trip in one rack and the work of a look as measured in
    benchmarks/results/decision.json with some margin for the changes; the papers' own scheduler,
    which matches its whole queue against each tree, needs 40 % of a decode step at eight workers.
    """

    def __init__(
        self,
        *,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_clients: int = 1_000_000,
        round_trip_us: int = 200,
        work_us: int = 100,
    ) -> None:
        assert round_trip_us >= 0 and work_us >= 0, (round_trip_us, work_us)
        self.claimed: Callable[[Request, WorkerId], int | None] = _nobody_else
        self.traffic = DeltaTraffic()
        self.cost = ServiceCost(cost, charge=charge)
        self._deficits = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self._deficits.listen(on_positive=self._open, on_exhausted=self._close)
        self._round_trip_us = round_trip_us
        self._work_us = work_us
        self._free_us = 0  # when the scheduler has answered all that asked so far
        self._views: dict[WorkerId, CentralView] = {}
        self._offers: dict[Request, int] = {}  # waiting: how many views have it
        self._waiting: dict[ClientId, int] = {}

    # -- LateBound -----------------------------------------------------------------------------

    def add_worker(self, worker: WorkerId, cache: RadixTree | BlockCache) -> "CentralView":
        """See `LateBound.add_worker`."""
        assert worker not in self._views, worker
        view = self._views[worker] = CentralView(self, worker, cache)
        return view

    def remove_worker(self, worker: WorkerId) -> Mapping[Request, int]:
        """See `LateBound.remove_worker`. O(waiting + running there)."""
        view = self._views[worker]
        view.ledger.sync(None)
        del self._views[worker]
        for request in list(view.requests):
            view.remove(request)
        return view.paid

    def blocked_us(self, worker: WorkerId, now_us: int) -> int:
        """See `LateBound.blocked_us`. O(1)."""
        view = self._views[worker]
        if not view.asked:
            return 0
        view.asked = False
        begun_us = max(self._free_us, now_us + self._round_trip_us // 2)
        self._free_us = begun_us + self._work_us
        blocked_us = self._free_us + self._round_trip_us - self._round_trip_us // 2 - now_us
        self.traffic.blocked_us += blocked_us
        return blocked_us

    def overhead(self) -> Mapping[str, int | float]:
        """See `LateBound.overhead`. O(1)."""
        traffic = self.traffic
        return {
            "looks": traffic.looks,
            "changes": traffic.changes,
            "delta_bytes": traffic.delta_bytes,
            "answer_bytes": traffic.answer_bytes,
            "blocked_s": traffic.blocked_us / 10**6,
        }

    # -- what views share ----------------------------------------------------------------------

    def offer(self, request: Request) -> None:
        """One more view has it. Raises QueueFull if it is a new client and the table is full."""
        client = request.client
        if request in self._offers:
            self._offers[request] += 1
            return
        if client not in self._waiting:
            if self._deficits.join(client):  # Alg. 1, lines 11-13
                self._open(client)
            self._waiting[client] = 0
        self._waiting[client] += 1
        self._offers[request] = 1

    def withdraw(self, request: Request) -> None:
        """One view less has it; with the last one it waits no more."""
        client = request.client
        self._offers[request] -= 1
        if not self._offers[request]:
            del self._offers[request]
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
                self._deficits.leave(client)

    def is_open(self, client: ClientId) -> bool:
        """Whether q_i > 0."""
        return self._deficits.value(client) > 0

    def sync_charges(self) -> None:
        """Charge what every worker has emitted so far. O(running)."""
        for view in self._views.values():
            view.ledger.sync(None)

    def refill(self) -> bool:
        """Alg. 1, CheckRefill, over the requests that wait anywhere."""
        return bool(self._deficits.check_refill())

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """Replace an earlier charge by the true cost."""
        self._deficits.replace(client, charged=charged, true=true)

    def admitted(self, request: Request, extend_len: int, worker: WorkerId) -> int:
        """`worker` took it: the others hear of that, and its client pays. Outputs paid before."""
        self.traffic.answer_bytes += TOKEN_BYTES * request.input_len
        paid = self.claimed(request, worker)
        assert request not in self._offers, "somebody else could still take it"
        if paid is not None:
            return paid
        # Alg. 1, lines 22-24
        self._deficits.charge(request.client, self.cost.prompt(request.input_len, extend_len))
        return 0

    def emitted(self, request: Request, before: int, tokens: int) -> None:
        """Alg. 1, line 26, of tokens that are not paid for."""
        self._deficits.charge(request.client, self.cost.outputs(request.input_len, before, tokens))

    def credit(self, client: ClientId) -> int:
        """q_i in units."""
        return self._deficits.value(client)

    @property
    def rounds(self) -> int:
        """How many times q_i <- q_i + Q_i has run."""
        return self._deficits.rounds

    def _open(self, client: ClientId) -> None:
        for view in self._views.values():
            view.open(client)

    def _close(self, client: ClientId) -> None:
        for view in self._views.values():
            view.close(client)


class ViewLedger:
    """The shared deficits as one worker's queue sees them: its own pending outputs and refills."""

    def __init__(self, central: CentralDLPM) -> None:
        self.sync: SyncCharges = nothing_pending
        self.rounds = 0  # of refill, in passes of this worker
        self._central = central

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """See `Ledger.replace`."""
        self._central.replace(client, charged=charged, true=true)


class CentralView:
    """One worker's policy: DLPM over the shared queue and deficits, in the order of its own tree."""

    def __init__(
        self, central: CentralDLPM, worker: WorkerId, cache: RadixTree | BlockCache
    ) -> None:
        self.ledger = ViewLedger(central)
        self.cost = central.cost
        self.requests: dict[Request, None] = {}
        self.paid: dict[Request, int] = {}  # running here: the outputs paid for, here or before
        self.feed = DeltaFeed(cache)
        self.asked = False  # a delta was sent whose answer the worker has not been blocked for
        self._central = central
        self._worker = worker
        self._index = waiting_index(cache)

    def add(self, request: Request) -> None:
        """See `Policy.add`."""
        self._central.offer(request)
        self.requests[request] = None
        self._index.add(request)
        if self._central.is_open(request.client):
            self._index.open(request.client)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        del self.requests[request]
        self._index.remove(request)
        self._central.withdraw(request)

    def begin(self) -> None:
        """The worker sends what changed and waits for the answer; all is charged up to now."""
        delta, traffic = self.feed.take(), self._central.traffic
        traffic.looks += 1
        traffic.changes += len(delta.changes)
        traffic.delta_bytes += delta.size_bytes
        traffic.answer_bytes += HEADER_BYTES
        self.asked = True
        self._central.sync_charges()
        self._index.show_all()

    def next(self) -> Request | None:
        """Alg. 1, lines 16-21, over this worker's prefixes."""
        while True:
            request = self._index.best()
            if request is not None:
                return request
            refilled = self._central.rounds
            if not self._central.refill():
                return None
            self.ledger.rounds += self._central.rounds - refilled

    def skip(self, request: Request) -> None:
        """Skip a request that does not fit here; its client keeps q_i > 0, so no worker refills."""
        self._index.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """It runs here, and waits nowhere."""
        self.remove(request)
        self.paid[request] = self._central.admitted(request, extend_len, self._worker)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Each output token, the first included; but those of a lost worker are not paid twice."""
        paid, emitted = self.paid[request], before + tokens
        if emitted > paid:
            self.paid[request] = emitted
            before = max(before, paid)
            self._central.emitted(request, before, emitted - before)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """See `Refunding`."""
        del self.paid[request]

    def credit(self, client: ClientId) -> int:
        """q_i in units."""
        return self._central.credit(client)

    def open(self, client: ClientId) -> None:
        """q_i > 0; it may have nothing here."""
        if self._index.waiting(client):
            self._index.open(client)

    def close(self, client: ClientId) -> None:
        """q_i <= 0."""
        if self._index.waiting(client):
            self._index.close(client)


def _nobody_else(request: Request, worker: WorkerId) -> None:
    """With one worker there is nobody to tell, and nowhere that it was before."""

"""Centralised DLPM, the papers' strawman: arXiv:2501.14312v1, section 5.1, repaired.

One queue and one set of deficits q_i for all workers. No request is routed on arrival: a worker with free
capacity sends the changes of its cache, waits for the answer, and takes the requests that DLPM would admit
there.

    view      one worker's policy over the shared queue: DLPM's order by that worker's cache
    delta     the changes of the worker's cache since its last scheduling pass, numbered and in order
    blocked   from the delta to the answer the worker computes nothing

A blocked worker's cache cannot change between delta and answer. So a view reads the cache itself, and the
deltas, which suffice to keep a copy (a test keeps one), are only counted.
Repairs: deltas are ordered (A8.1); workers that ask at once are answered one after the other by one
scheduler, instead of racing for a lock (A8.4); outputs are charged up to the moment of each scheduling pass.
The bound is 2 (w_q * sum of M_w + w_e + Q), as one queue shares all memories.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.ledgers.overdraft import Standing
from fairhit.core.policy import SyncCharges, nothing_pending
from fairhit.core.request import ClientId, Request, Unit, WorkerId
from fairhit.core.service import Cost, ServiceCost, Weights
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.core.waiting.index import WaitingIndex

HEADER_BYTES = 24  # worker, number of the delta, free memory
CHANGE_BYTES = 12  # the prefix, as a hash of 8 bytes and a length of 4; inserted tokens follow
TOKEN_BYTES = 4
HASH_BYTES = 16  # of a block


class CacheChange(NamedTuple):
    """An insertion of `tokens[:length]` (`grown`), or an eviction that left only that of `tokens`."""

    grown: bool
    tokens: Runs
    length: int


class Delta(NamedTuple):
    """Changes of a cache since the previous delta, and their size on the wire.

    The paper's Delta-Tree is a set of inserted and a set of evicted nodes, which loses the order of changes
    of one node. A delta is a numbered list in order instead (theory, A8.1).
    """

    number: int
    changes: tuple[CacheChange, ...]
    size_bytes: int


class DeltaFeed:
    """Collects the changes of one worker's cache into deltas.

    Of a block cache, where a change is one hash, only the sizes are counted.
    """

    def __init__(self, cache: RadixTree | BlockCache) -> None:
        self._number = 0
        self._changes: list[CacheChange] = []
        self._bytes = 0
        self._cache = cache
        self._size = 0
        cache.listen(self)

    def take(self) -> Delta:
        """Return the next delta, which may be empty. O(1)."""
        self._number += 1
        delta = Delta(self._number, tuple(self._changes), HEADER_BYTES + self._bytes)
        self._changes.clear()
        self._bytes = 0
        return delta

    def grew(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        assert isinstance(self._cache, RadixTree)
        self._changes.append(CacheChange(True, tokens, length))
        self._bytes += CHANGE_BYTES + TOKEN_BYTES * (self._cache.size - self._size)
        self._size = self._cache.size

    def shrank(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        assert isinstance(self._cache, RadixTree)
        self._changes.append(CacheChange(False, tokens, length))
        self._bytes += CHANGE_BYTES
        self._size = self._cache.size

    def inserted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        self._bytes += HASH_BYTES

    def evicted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        self._bytes += HASH_BYTES


@dataclass(kw_only=True, slots=True)
class DeltaTraffic:
    """Cost of being central, so far."""

    passes: int = 0  # scheduling passes, each with a delta and an answer
    changes: int = 0  # of caches
    delta_bytes: int = 0
    answer_bytes: int = 0  # with the prompts, as tokens
    blocked_us: int = 0  # of all workers together


class CentralDLPM:
    """Replaces a router: requests stay unassigned until a worker with free capacity admits one.

    The simulator adds each request to all workers' policies, and removes it from the others when `claimed`
    reports the worker that admitted it. If the request ran at a worker that failed, `claimed` returns what
    `remove_worker` returned for it, so that nothing is charged twice.

    An answer takes `round_trip_us` on the network and `work_us` at the scheduler. The defaults are the
    round trip within a rack and the cost of a scheduling pass in benchmarks/results/decision.json with some
    margin for the changes. The papers' own scheduler, which matches its whole queue against each tree,
    needs 40 % of a decode step at eight workers.
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
        self.claimed: Callable[[Request, WorkerId], int | None] = _no_other_worker
        self.traffic = DeltaTraffic()
        self.cost = ServiceCost(cost, charge=charge)
        self._deficits = self._make_deficits(quantum, weights, max_clients)
        self._round_trip_us = round_trip_us
        self._work_us = work_us
        self._free_us = 0  # time at which all answers so far are sent
        self._views: dict[WorkerId, CentralView] = {}
        self._offers: dict[
            Request, int
        ] = {}  # waiting requests: the number of views that have each
        self._waiting: dict[ClientId, int] = {}

    def add_worker(self, worker: WorkerId, cache: RadixTree | BlockCache) -> "CentralView":
        """Add a worker with its cache; return its policy, to which waiting requests must be added."""
        assert worker not in self._views, worker
        view = self._views[worker] = CentralView(self, worker, cache)
        return view

    def remove_worker(self, worker: WorkerId) -> Mapping[Request, int]:
        """Remove a worker, and the requests that were added to its policy only. O(waiting + running there).

        Returns the requests that ran there, with the number of outputs charged for each.
        """
        view = self._views[worker]
        view.ledger.sync(None)
        del self._views[worker]
        for request in list(view.requests):
            view.remove(request)
        return view.paid

    def blocked_us(self, worker: WorkerId, now_us: int) -> int:
        """Return how long the worker waits for the answer to its last pass, once; 0 without a pass. O(1)."""
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
        """Return what the answers have cost so far: `central` in docs/reference/summary.md. O(1)."""
        traffic = self.traffic
        return {
            "passes": traffic.passes,
            "changes": traffic.changes,
            "delta_bytes": traffic.delta_bytes,
            "answer_bytes": traffic.answer_bytes,
            "blocked_s": traffic.blocked_us / 10**6,
        }

    # -- the rules -----------------------------------------------------------------------------

    def _make_deficits(self, quantum: int, weights: Weights | None, max_clients: int) -> Deficits:
        """Return the ledger of q_i, which opens and closes clients at all workers."""
        deficits = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        deficits.listen(
            on_positive=lambda client: self.place(client, Standing.OPEN),
            on_exhausted=lambda client: self.place(client, Standing.CLOSED),
        )
        return deficits

    def make_index(self, cache: RadixTree | BlockCache) -> WaitingIndex:
        """Return the index of the queue by one worker's cache."""
        return waiting_index(cache)

    def standing(self, client: ClientId) -> Standing:
        """Return which requests of the client may be admitted."""
        return Standing.OPEN if self._deficits.value(client) > 0 else Standing.CLOSED

    def place(self, client: ClientId, standing: Standing) -> None:
        """Open or close the client's waiting requests at all workers."""
        for view in self._views.values():
            view.place(client, standing)

    # -- shared by the views -------------------------------------------------------------------

    def offer(self, request: Request) -> None:
        """Count a view that has `request`. Raises QueueFull for a new client if the table is full."""
        client = request.client
        if request in self._offers:
            self._offers[request] += 1
            return
        if client not in self._waiting:
            self._deficits.join(client)  # Alg. 1, lines 11-13
            self._waiting[client] = 0
        self._waiting[client] += 1
        self._offers[request] = 1

    def withdraw(self, request: Request) -> None:
        """Count a view that no longer has `request`, which stops waiting with the last one."""
        client = request.client
        self._offers[request] -= 1
        if not self._offers[request]:
            del self._offers[request]
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
                self._deficits.leave(client)

    def sync_charges(self) -> None:
        """Charge the outputs of all workers so far. O(running)."""
        for view in self._views.values():
            view.ledger.sync(None)

    def refill(self) -> bool:
        """Alg. 1, CheckRefill, over the requests that wait anywhere; prices change only then."""
        refilled = bool(self._deficits.check_refill())
        if refilled:
            self.cost.refresh()
        return refilled

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """Replace an earlier charge by the true cost."""
        self._deficits.replace(client, charged=charged, true=true)

    def admitted(self, request: Request, extend_len: int, worker: WorkerId) -> int:
        """Remove `request`, admitted by `worker`, elsewhere and charge it; the outputs charged before."""
        self.traffic.answer_bytes += TOKEN_BYTES * request.input_len
        paid = self.claimed(request, worker)
        assert request not in self._offers, "another worker could still take it"
        if paid is not None:
            return paid
        # Alg. 1, lines 22-24
        self._deficits.charge(request.client, self.cost.prompt(request.input_len, extend_len))
        return 0

    def emitted(self, request: Request, before: int, tokens: int) -> None:
        """Alg. 1, line 26, for tokens that have not been charged."""
        self._deficits.charge(request.client, self.cost.outputs(request.input_len, before, tokens))

    def credit(self, client: ClientId) -> int:
        """q_i in units."""
        return self._deficits.value(client)

    @property
    def rounds(self) -> int:
        """Refill rounds so far: q_i <- q_i + Q_i."""
        return self._deficits.rounds


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
    """Policy of one worker: DLPM over the shared queue and deficits, in the order of the worker's cache."""

    def __init__(
        self, central: CentralDLPM, worker: WorkerId, cache: RadixTree | BlockCache
    ) -> None:
        self.ledger = ViewLedger(central)
        self.cost = central.cost
        self.requests: dict[Request, None] = {}
        self.paid: dict[
            Request, int
        ] = {}  # running here: outputs charged, here or at a lost worker
        self.feed = DeltaFeed(cache)
        self.asked = False  # the worker has not yet been blocked for the last answer
        self._central = central
        self._worker = worker
        self._index = central.make_index(cache)

    def add(self, request: Request) -> None:
        """See `Policy.add`."""
        self._central.offer(request)
        self.requests[request] = None
        self._index.add(request)
        self.place(request.client, self._central.standing(request.client))

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        del self.requests[request]
        self._index.remove(request)
        self._central.withdraw(request)

    def begin_pass(self) -> None:
        """Begin a scheduling pass: send the delta, and charge all outputs so far."""
        delta, traffic = self.feed.take(), self._central.traffic
        traffic.passes += 1
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
        """Remove `request`, which runs here now, from the queue."""
        self.remove(request)
        self.paid[request] = self._central.admitted(request, extend_len, self._worker)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge output tokens, the first included, except those already charged at a lost worker."""
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

    def place(self, client: ClientId, standing: Standing) -> None:
        """Make the waiting requests of `client`, if any, eligible or not."""
        if not self._index.waiting(client):
            return
        if standing is Standing.OPEN:
            self._index.open(client)
        elif standing is Standing.HITS:
            self._index.open_for_hits(client)
        else:
            self._index.close(client)


def _no_other_worker(request: Request, worker: WorkerId) -> None:
    """Default of `claimed`, for one worker."""

"""Snapshots: once a second, service, waiting requests and engine states, as a sample for the dashboard.

A snapshot reads counters and changes none. It costs O(clients with a request under way now or since the
last one, plus engines), whatever the number of known clients.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Weights, system_view
from fairhit.dispatch import Dispatcher, Engine, TicketState
from fairhit.gateway.observability.metrics.entitlement_shares import EntitlementShares
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.metrics.service_gap import (
    MOST_WAITING,
    ClientGap,
    EngineGaps,
    bound,
    debt,
)
from fairhit.gateway.observability.page.ranking import Ranking
from fairhit.gateway.pool.watched_engine import WatchedEngine
from fairhit.routers.in_flight_load import load_of

# Clients shown by name; all others are added up.
MOST_CLIENTS = 12
# Engines shown; the page shows how many more there are.
MOST_WORKERS = 64
# In place of an engine's name, where requests wait for any engine.
ALL_ENGINES: WorkerId = "all engines"
# Row of a client that was idle.
_IDLE = [0] * 6

Watches = Callable[[], list[tuple[WorkerId, WatchedEngine, Engine]]]


@dataclass(slots=True)
class _Totals:
    """Sums of a client since the start, in tokens; `service` includes requests under way."""

    service: int = 0
    extend: int = 0
    cached: int = 0
    output: int = 0
    waiting: int = 0
    in_flight: int = 0

    def since(self, before: "_Totals") -> list[int]:
        """Row of a sample: service, extend, cached, output since `before`; waiting, in flight now."""
        return [
            self.service - before.service,
            self.extend - before.extend,
            self.cached - before.cached,
            self.output - before.output,
            self.waiting,
            self.in_flight,
        ]


@dataclass(frozen=True, slots=True)
class WorstGap:
    """The widest service gap at one engine, and its bound, if the policy has one."""

    worker: WorkerId
    gap: ClientGap
    bound: float | None


@dataclass(slots=True)
class _UnderWay:
    """Service so far of requests at the engines, and requests that wait inside an engine."""

    clients: dict[ClientId, int] = field(default_factory=dict)
    at: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)
    waiting: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)


class SnapshotTaker:
    """Takes snapshots; `gaps`, `violations` and `client_gaps` are updated by each."""

    def __init__(self, dispatcher: Dispatcher, recorder: Recorder, watches: Watches) -> None:
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._watches = watches
        self._ranking = Ranking(MOST_CLIENTS)
        self._last: dict[ClientId, _Totals] = {}  # at the client's last snapshot
        self._service = 0  # sum of these
        self._gaps: dict[WorkerId, EngineGaps] = {}
        self._switches = 0
        self.entitled = EntitlementShares()
        self.gaps: list[WorstGap] = []  # one per engine, the one nearest to its bound first
        self.violations = 0  # gaps found wider than their bound, by snapshot and engine
        self.client_gaps: dict[ClientId, float] = {}  # widest gap of each client, in tokens

    def take(self, *, time_s: float, took_s: float) -> dict[str, object]:
        """Sample of the last `took_s` seconds. O(clients that were busy + engines)."""
        under_way = self._under_way()
        self._compare(under_way)
        changes = self._changes(under_way)
        self._ranking.update(
            {name: change[0] for name, change in changes.items()},
            {name: change[4] for name, change in changes.items() if change[4]},
        )
        self._entitle(changes, under_way)
        shown = [name for name in self._ranking.shown if name != OTHER]
        return {
            "t": round(time_s, 3),
            "s": round(took_s, 3),
            "clients": {name: changes.get(name, _IDLE) for name in shown},
            "other": self._rest(changes, shown),
            "entitled": {
                name: round(share, 3)
                for name in shown
                if (share := self.entitled.shares.get(name)) is not None
            },
            "consumed": self._consumed(shown),
            "gap": self._worst(),
            "waiting": len(self._dispatcher.queue),
            "workers": dict(map(self._worker, self._watches()[:MOST_WORKERS])),
        }

    def _consumed(self, shown: Sequence[ClientId]) -> dict[ClientId, list[float]]:
        """The shown clients' shares of charge and of engine time, as engines with the plug-in report them."""
        consumption = self._dispatcher.consumption
        consumption.expire(time.monotonic())
        shares = {name: consumption.share(name) for name in shown}
        return {
            name: [round(share.charge, 3), round(share.seconds, 3)]
            for name, share in shares.items()
            if share is not None
        }

    def _changes(self, under_way: _UnderWay) -> dict[ClientId, list[int]]:
        """Rows of all clients with a request now or since the last snapshot."""
        label = self._dispatcher.ledger.label
        waiting = islice(self._dispatcher.ledger.waiting_by_client(), MOST_WAITING)
        busy = dict.fromkeys((*under_way.clients, *map(label, waiting), *self._ranking.shown))
        changes = {}
        for name in {**self._recorder.recent, **busy}:
            before = self._last.get(name) or _Totals()
            now = self._last[name] = self._totals(name, under_way)
            # An estimate that proves too high makes no negative service: the next rows are smaller.
            now.service = max(now.service, before.service)
            self._service += now.service - before.service
            changes[name] = now.since(before)
        return changes

    def _entitle(self, changes: Mapping[ClientId, list[int]], under_way: _UnderWay) -> None:
        """Update the shares of entitlement of the clients with a name. O(clients in the last minute).

        What a request under way has yet to receive is estimated by the mean of the client's finished ones.
        """
        weights = self._dispatcher.queue.rules.weights or Weights()
        outstanding = {}
        for name, row in changes.items():
            account = self._dispatcher.ledger.account(name)
            finished = account.requests - account.in_flight
            mean = account.service.system_view() / finished if finished else 0.0
            outstanding[name] = max(0, round(row[5] * mean) - under_way.clients.get(name, 0))
        served = {name: row[0] for name, row in changes.items()}
        for rows in (served, outstanding):
            rows.pop(OTHER, None)  # many clients, of any weights
        self.entitled.add(served, outstanding, weights.of)

    def _totals(self, name: ClientId, under_way: _UnderWay) -> _Totals:
        account = self._dispatcher.ledger.account(name)
        got = account.service
        return _Totals(
            got.system_view() + under_way.clients.get(name, 0),
            got.extend_len, got.cached_len, got.output_len,
            self._dispatcher.ledger.waiting(name), account.in_flight,
        )  # fmt: skip

    def _rest(
        self, changes: Mapping[ClientId, list[int]], shown: Sequence[ClientId]
    ) -> list[int] | None:
        """Row of all clients that are not shown; None if there are none.

        Their waiting and in-flight requests are all minus those shown, as the ledger does not name all.
        """
        known = [self._last[name] for name in shown]
        waiting = len(self._dispatcher.queue)
        in_flight = waiting + sum(len(one.tickets) for one in self._dispatcher.engines.values())
        waiting -= sum(each.waiting for each in known)
        if self._service == sum(each.service for each in known) and waiting <= 0:
            return None
        rest = [change for name, change in changes.items() if name not in shown]
        served = [sum(column) for column in zip(*rest, strict=True)][:4] or _IDLE[:4]
        return [*served, waiting, in_flight - sum(each.in_flight for each in known)]

    def _under_way(self) -> _UnderWay:
        found = _UnderWay()
        for name, worker in self._dispatcher.engines.items():
            peaks = worker.peaks
            waiting: dict[ClientId, int] = {}
            at: dict[ClientId, int] = {}
            for ticket in worker.tickets:
                client = ticket.request.client
                if ticket.lane is None and ticket.state is TicketState.WAITING:
                    waiting[client] = waiting.get(client, 0) + 1
                    continue
                extend_len, output_len = ticket.extend_len, ticket.output_len
                if extend_len > peaks.extend or output_len > peaks.output:
                    peaks.record(ticket, extend_len=extend_len)
                at[client] = at.get(client, 0) + system_view(extend_len, output_len)
            found.waiting[name], found.at[name] = self._labelled(waiting), self._labelled(at)
            for label in {**found.waiting[name], **found.at[name]}:
                more = found.at[name].get(label, 0)
                found.clients[label] = found.clients.get(label, 0) + more
        return found

    def _labelled(self, counts: Mapping[ClientId, int]) -> dict[ClientId, int]:
        """The same counts by the clients' labels in the metrics."""
        labelled: dict[ClientId, int] = {}
        for client, number in counts.items():
            label = self._dispatcher.ledger.label(client)
            labelled[label] = labelled.get(label, 0) + number
        return labelled

    def _compare(self, under_way: _UnderWay) -> None:
        """Update the gaps of clients that wait here for any engine, or at each engine. O(1) for each."""
        queueing = self._dispatcher.queue
        # A new policy, new weights or a restarted policy: its counters do not include earlier service.
        if queueing.switches != self._switches:
            self._switches = queueing.switches
            self._gaps.clear()
        self.gaps, self.client_gaps = [], {}
        known = {ALL_ENGINES, *self._dispatcher.engines}
        for removed in [name for name in self._gaps if name not in known]:
            del self._gaps[removed]
        for name, waiting, received in self._waits(under_way):
            found = self._gaps.setdefault(name, EngineGaps()).add(waiting, received)
            if found:
                limit = self._bound(found[0])
                self.gaps.append(WorstGap(name, found[0], limit))
                self.violations += limit is not None and found[0].tokens > limit
            for gap in found:
                for client in (gap.first, gap.second):
                    self.client_gaps[client] = max(self.client_gaps.get(client, 0.0), gap.tokens)
        self.gaps.sort(key=lambda worst: -(worst.gap.tokens / (worst.bound or 1e12)))

    def _waits(
        self, under_way: _UnderWay
    ) -> Iterator[tuple[WorkerId, Collection[ClientId], Callable[[ClientId], float | None]]]:
        """Yield where clients wait, which do, and the service that each has received there."""
        if self._dispatcher.queue.queues:
            waiting = self._dispatcher.ledger.waiting_by_client()
            yield ALL_ENGINES, waiting, partial(self._received, None, under_way.clients)
            return
        for name, worker in self._dispatcher.engines.items():
            received = partial(self._received, name, under_way.at[name])
            yield name, under_way.waiting[name] if worker.up else (), received

    def _received(
        self, worker: WorkerId | None, at: Mapping[ClientId, int], client: ClientId
    ) -> float | None:
        """Service of a client at `worker`, or in all, by weight; None if it has no name of its own."""
        ledger = self._dispatcher.ledger
        if ledger.label(client) == OTHER:
            return None
        if worker is None:
            service = ledger.account(client).service
            ended = system_view(service.extend_len, service.output_len)
        else:
            ended = ledger.received(client, worker)
        return (ended + at.get(client, 0)) / self._weight(client)

    def _bound(self, gap: ClientGap) -> float | None:
        queue = self._dispatcher.queue
        if queue.rules.shared or not queue.queues or queue.lanes.waiting > 1:
            # Fair over all gateways, of which this one sees its own part; or in the engines; or the two may
            # wait for different engines.
            return None
        quantum = 0
        if queue.scheduler == "dlpm" and queue.deficits is not None:
            full = queue.deficits.quantum_of(gap.first) / UNITS_PER_TOKEN
            quantum = round(full / self._weight(gap.first))
        return bound(
            queue.scheduler,
            debt=sum(debt(worker.peaks) for worker in self._dispatcher.engines.values()),
            quantum=quantum,
            first=self._weight(gap.first),
            second=self._weight(gap.second),
        )

    def _weight(self, client: ClientId) -> float:
        weights = self._dispatcher.queue.rules.weights
        return weights.of(client) / WEIGHT_SCALE if weights is not None else 1.0

    def _worst(self) -> dict[str, object] | None:
        if not self.gaps:
            return None
        worst = self.gaps[0]
        return {
            "tokens": round(worst.gap.tokens),
            "bound": None if worst.bound is None else round(worst.bound),
            "worker": worst.worker,
            "clients": [worst.gap.first, worst.gap.second],
        }

    def _worker(
        self, known: tuple[WorkerId, WatchedEngine, Engine]
    ) -> tuple[str, dict[str, object]]:
        name, watch, worker = known
        load = load_of(self._dispatcher.router)
        return name, {
            "state": "draining" if watch.draining else "up" if worker.up else "down",
            "circuit": watch.engine.breaker.phase.value,
            "in_flight": len(worker.tickets),
            "limit": worker.limit.size if worker.limit is not None else None,
            "in_flight_tokens": load.tokens(name) if load is not None and worker.up else None,
        }

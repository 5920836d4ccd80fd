"""One look a second at who is served, who waits and what the engines do: a sample for the page.

It reads what others keep and changes nothing of theirs. Its cost depends on the clients that had a
request under way now or since the last one, and on engines; not on how many clients are known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from fairhit.core.client_table import OTHER
from fairhit.core.policy import SharingDeficits
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, system_view
from fairhit.dispatch import Dispatcher, Engine, TicketState
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
from fairhit.policies.dlpm import DLPM

# Clients shown by name; all others are one.
MOST_CLIENTS = 12
# Engines shown; those that come after them are left out, and the page says so.
MOST_WORKERS = 64
# The change of one that was not busy.
_NOTHING = [0] * 6

Watches = Callable[[], list[tuple[WorkerId, WatchedEngine, Engine]]]


@dataclass(slots=True)
class _Totals:
    """Of one client since the gateway began, in tokens; `service` counts requests under way, too."""

    service: int = 0
    extend: int = 0
    cached: int = 0
    output: int = 0
    waiting: int = 0
    in_flight: int = 0

    def since(self, before: "_Totals") -> list[int]:
        """As the sample has it."""
        return [
            self.service - before.service,
            self.extend - before.extend,
            self.cached - before.cached,
            self.output - before.output,
            self.waiting,
            self.in_flight,
        ]


@dataclass(frozen=True, slots=True)
class GapSeen:
    """The widest gap at one engine, and what bounds it, if anything does."""

    worker: WorkerId
    gap: ClientGap
    bound: float | None


@dataclass(slots=True)
class _UnderWay:
    """What requests that are with the engines have been charged, or have received, so far."""

    clients: dict[ClientId, int] = field(default_factory=dict)
    at: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)
    waiting: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)  # in the engine


class SnapshotTaker:
    """Call `look` once a second; `gaps` is what the last one found."""

    def __init__(self, dispatcher: Dispatcher, recorder: Recorder, watches: Watches) -> None:
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._watches = watches
        self._ranking = Ranking(MOST_CLIENTS)
        self._known: dict[ClientId, _Totals] = {}  # as each was when it was last looked at
        self._service = 0  # of all these
        self._gaps: dict[WorkerId, EngineGaps] = {}
        self._switches = 0
        self.gaps: list[GapSeen] = []  # of each engine, the one nearest to its bound first
        self.violations = 0  # looks at an engine whose gap was wider than its bound
        self.of_client: dict[ClientId, float] = {}  # the widest gap each is part of, in tokens

    def look(self, *, time_s: float, took_s: float) -> dict[str, object]:
        """The sample; `took_s` have passed since the one before. O(clients that were busy + engines)."""
        under_way = self._under_way()
        self._compare(under_way)
        changes = self._changes(under_way)
        self._ranking.look(
            {name: change[0] for name, change in changes.items()},
            {name: change[4] for name, change in changes.items() if change[4]},
        )
        shown = [name for name in self._ranking.shown if name != OTHER]
        return {
            "t": round(time_s, 3),
            "s": round(took_s, 3),
            "clients": {name: changes.get(name, _NOTHING) for name in shown},
            "other": self._rest(changes, shown),
            "gap": self._worst(),
            "waiting": len(self._dispatcher.queueing),
            "workers": dict(map(self._worker, self._watches()[:MOST_WORKERS])),
        }

    def _changes(self, under_way: _UnderWay) -> dict[ClientId, list[int]]:
        """Of whoever has a request at this look, or had one since the last."""
        label = self._dispatcher.ledger.label
        waiting = islice(self._dispatcher.queueing.counts(), MOST_WAITING)
        busy = dict.fromkeys((*under_way.clients, *map(label, waiting), *self._ranking.shown))
        changes = {}
        for name in {**self._recorder.lately, **busy}:
            before = self._known.get(name) or _Totals()
            now = self._known[name] = self._totals(name, under_way)
            # What was estimated too high is not taken back: it comes later.
            now.service = max(now.service, before.service)
            self._service += now.service - before.service
            changes[name] = now.since(before)
        return changes

    def _totals(self, name: ClientId, under_way: _UnderWay) -> _Totals:
        account = self._dispatcher.ledger.account(name)
        got = account.service
        return _Totals(
            got.system_view() + under_way.clients.get(name, 0),
            got.extend_len, got.cached_len, got.output_len,
            self._dispatcher.queueing.count(name), account.in_flight,
        )  # fmt: skip

    def _rest(
        self, changes: Mapping[ClientId, list[int]], shown: Sequence[ClientId]
    ) -> list[int] | None:
        """All that are not shown, as one. Who waits or is in flight is counted as a whole: the
        ledger does not name all of them.
        """
        known = [self._known[name] for name in shown]
        waiting = len(self._dispatcher.queueing)
        in_flight = waiting + sum(len(one.tickets) for one in self._dispatcher.workers.values())
        waiting -= sum(each.waiting for each in known)
        if self._service == sum(each.service for each in known) and waiting <= 0:
            return None
        rest = [change for name, change in changes.items() if name not in shown]
        served = [sum(column) for column in zip(*rest, strict=True)][:4] or _NOTHING[:4]
        return [*served, waiting, in_flight - sum(each.in_flight for each in known)]

    def _under_way(self) -> _UnderWay:
        found = _UnderWay()
        for name, worker in self._dispatcher.workers.items():
            largest = self._recorder.largest_at(name)
            largest.in_flight = max(largest.in_flight, len(worker.tickets))
            waiting: dict[ClientId, int] = {}
            at: dict[ClientId, int] = {}
            for ticket in worker.tickets:
                client = ticket.request.client
                if ticket.queue is None and ticket.state is TicketState.WAITING:
                    waiting[client] = waiting.get(client, 0) + 1
                    continue
                extend_len, output_len = ticket.extend_len, ticket.output_len
                if extend_len > largest.extend:  # noqa: PLR1730 - max costs three times that
                    largest.extend = extend_len
                if output_len > largest.output:  # noqa: PLR1730 - as above
                    largest.output = output_len
                at[client] = at.get(client, 0) + system_view(extend_len, output_len)
            found.waiting[name], found.at[name] = self._labelled(waiting), self._labelled(at)
            for label in {**found.waiting[name], **found.at[name]}:
                more = found.at[name].get(label, 0)
                found.clients[label] = found.clients.get(label, 0) + more
        return found

    def _labelled(self, counts: Mapping[ClientId, int]) -> dict[ClientId, int]:
        """By the names that are told."""
        told: dict[ClientId, int] = {}
        for client, number in counts.items():
            label = self._dispatcher.ledger.label(client)
            told[label] = told.get(label, 0) + number
        return told

    def _compare(self, under_way: _UnderWay) -> None:
        """Those that wait at each engine. O(1) for each engine."""
        queueing = self._dispatcher.queueing
        # Another policy, other weights, or the same begun anew: they know nothing of the past.
        if queueing.switches != self._switches:
            self._switches = queueing.switches
            self._gaps.clear()
        self.gaps, self.of_client = [], {}
        for gone in [name for name in self._gaps if name not in self._dispatcher.workers]:
            del self._gaps[gone]
            self._recorder.forget(gone)
        for name, worker in self._dispatcher.workers.items():
            gaps = self._gaps.setdefault(name, EngineGaps())
            waits = (
                under_way.waiting[name] if worker.queue is None else worker.queue.waiting.counts()
            )
            received = partial(self._received, name, under_way.at[name])
            found = gaps.look(waits if worker.up else (), received)
            if found:
                limit = self._bound(name, worker, found[0])
                self.gaps.append(GapSeen(name, found[0], limit))
                self.violations += limit is not None and found[0].tokens > limit
            for gap in found:
                for client in (gap.first, gap.second):
                    self.of_client[client] = max(self.of_client.get(client, 0.0), gap.tokens)
        self.gaps.sort(key=lambda seen: -(seen.gap.tokens / (seen.bound or 1e12)))

    def _received(
        self, worker: WorkerId, at: Mapping[ClientId, int], client: ClientId
    ) -> float | None:
        """What one that waits there has had there, divided by its weight; None if it has no name."""
        if self._dispatcher.ledger.label(client) == OTHER:
            return None
        known = self._recorder.clients().get(client)
        had = known.received.get(worker, 0) if known else 0
        return (had + at.get(client, 0)) / self._weight(client)

    def _bound(self, name: WorkerId, worker: Engine, gap: ClientGap) -> float | None:
        if worker.queue is None:
            return None
        policy = worker.queue.scheduler.policy
        if isinstance(
            policy, SharingDeficits
        ):  # it is fair over all gateways, and we see what went through ours
            return None
        quantum = 0
        if isinstance(policy, DLPM):
            full = policy.quantum_of(gap.first) / UNITS_PER_TOKEN
            quantum = round(full / self._weight(gap.first))
        return bound(
            self._dispatcher.queueing.scheduler,
            debt=debt(self._recorder.largest_at(name)),
            quantum=quantum,
            first=self._weight(gap.first),
            second=self._weight(gap.second),
        )

    def _weight(self, client: ClientId) -> float:
        weights = self._dispatcher.queueing.rules.weights
        return weights.of(client) / WEIGHT_SCALE if weights is not None else 1.0

    def _worst(self) -> dict[str, object] | None:
        if not self.gaps:
            return None
        seen = self.gaps[0]
        return {
            "tokens": round(seen.gap.tokens),
            "bound": None if seen.bound is None else round(seen.bound),
            "worker": seen.worker,
            "clients": [seen.gap.first, seen.gap.second],
        }

    def _worker(
        self, known: tuple[WorkerId, WatchedEngine, Engine]
    ) -> tuple[str, dict[str, object]]:
        name, watch, worker = known
        router, queue = self._dispatcher.router, worker.queue
        outstanding = getattr(router, "outstanding", None)
        return name, {
            "state": "draining" if watch.draining else "up" if worker.up else "down",
            "circuit": watch.engine.breaker.phase.value,
            "in_flight": len(worker.tickets),
            "waiting": len(queue.waiting) if queue is not None else None,
            "window": queue.window.size if queue is not None else None,
            "outstanding": outstanding(name) if outstanding is not None and worker.up else None,
        }

"""One look a second at who is served, who waits and what the engines do: a sample for the page.

It reads what others keep and changes nothing of theirs. Its cost does not depend on how many requests
there were since the last one, only on how many are under way, on clients known by name and on engines.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairlead.core.clients import OTHER
from fairlead.core.request import ClientId, WorkerId
from fairlead.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE
from fairlead.dispatch import Dispatcher, State, Worker
from fairlead.gateway.seeing.gap import Gap, Gaps, bound, debt
from fairlead.gateway.seeing.ranking import Ranking
from fairlead.gateway.seeing.recorder import Recorder
from fairlead.gateway.workers import Watch
from fairlead.schedulers.dlpm import DLPM

# Clients shown by name; all others are one.
MOST_CLIENTS = 12
# Engines shown; those that come after them are left out, and the page says so.
MOST_WORKERS = 64

Watches = Callable[[], list[tuple[WorkerId, Watch, Worker]]]


@dataclass(slots=True)
class _Totals:
    """Of one client since the gateway began, in tokens; `service` counts requests under way, too."""

    service: int = 0
    extend: int = 0
    cached: int = 0
    output: int = 0
    waiting: int = 0
    in_flight: int = 0

    def add(self, other: "_Totals") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: "_Totals") -> list[int]:
        """As the sample has it. What was estimated too high is not taken back: it comes later."""
        return [
            max(0, self.service - before.service),
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
    gap: Gap
    bound: float | None


@dataclass(slots=True)
class _UnderWay:
    """What requests that are with the engines have been charged, or have received, so far."""

    clients: dict[ClientId, int] = field(default_factory=dict)
    at: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)
    waiting: dict[WorkerId, dict[ClientId, int]] = field(default_factory=dict)  # in the engine


class Look:
    """Call `look` once a second; `gaps` is what the last one found."""

    def __init__(self, dispatcher: Dispatcher, recorder: Recorder, watches: Watches) -> None:
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._watches = watches
        self._ranking = Ranking(MOST_CLIENTS)
        self._before: dict[ClientId, _Totals] = {}
        self._gaps: dict[WorkerId, Gaps] = {}
        self._scheduler = ""
        self.gaps: list[GapSeen] = []  # of each engine, the one nearest to its bound first
        self.violations = 0  # looks at an engine whose gap was wider than its bound
        self.of_client: dict[ClientId, float] = {}  # the widest gap each is part of, in tokens

    def look(self, *, time_s: float, took_s: float) -> dict[str, object]:
        """The sample; `took_s` have passed since the one before. O(clients + requests under way)."""
        under_way = self._under_way()
        self._compare(under_way)
        totals = self._totals(under_way)
        before = self._before
        none = _Totals()
        served = {
            name: max(0, each.service - before.get(name, none).service)
            for name, each in totals.items()
        }
        waiting = {name: each.waiting for name, each in totals.items() if each.waiting}
        self._ranking.look(served, waiting)
        self._before = totals
        shown = [name for name in self._ranking.shown if name in totals and name != OTHER]
        rest, rest_before = _Totals(), _Totals()
        for name, each in totals.items():
            if name not in shown:
                rest.add(each)
                rest_before.add(before.get(name, none))
        # Those that the ledger does not name wait here, too.
        rest.waiting = len(self._dispatcher.queueing) - sum(totals[n].waiting for n in shown)
        return {
            "t": round(time_s, 3),
            "s": round(took_s, 3),
            "clients": {name: totals[name].since(before.get(name, none)) for name in shown},
            "other": rest.since(rest_before) if rest.service or rest.waiting > 0 else None,
            "gap": self._worst(),
            "waiting": len(self._dispatcher.queueing),
            "workers": dict(map(self._worker, self._watches()[:MOST_WORKERS])),
        }

    def _totals(self, under_way: _UnderWay) -> dict[ClientId, _Totals]:
        queueing = self._dispatcher.queueing
        totals = {}
        for name, account in self._dispatcher.ledger.accounts():
            got = account.service
            totals[name] = _Totals(
                got.system_view() + under_way.clients.get(name, 0),
                got.extend_len, got.cached_len, got.output_len,
                queueing.count(name), account.in_flight,
            )  # fmt: skip
        for name, before in self._before.items():
            if name in totals and totals[name].service < before.service:
                totals[name].service = before.service
        return totals

    def _under_way(self) -> _UnderWay:
        found = _UnderWay()
        label = self._dispatcher.ledger.label
        for name, worker in self._dispatcher.workers.items():
            at = found.at[name] = {}
            waiting: dict[ClientId, int] = {}
            found.waiting[name] = waiting
            largest = self._recorder.largest_at(name)
            largest.in_flight = max(largest.in_flight, len(worker.tickets))
            for ticket in worker.tickets:
                client = label(ticket.request.client)
                if ticket.queue is None and ticket.state is State.WAITING:
                    waiting[client] = waiting.get(client, 0) + 1
                    continue
                largest.extend = max(largest.extend, ticket.extend_len)
                largest.output = max(largest.output, ticket.output_len)
                tokens = ticket.extend_len + 2 * ticket.output_len
                at[client] = at.get(client, 0) + tokens
                found.clients[client] = found.clients.get(client, 0) + tokens
        return found

    def _compare(self, under_way: _UnderWay) -> None:
        """Those that wait at each engine. O(clients that wait), O(1) for each engine's pairs."""
        queueing = self._dispatcher.queueing
        if queueing.scheduler != self._scheduler:  # another policy knows nothing of the past
            self._scheduler = queueing.scheduler
            self._gaps.clear()
        self.gaps, self.of_client = [], {}
        for gone in [name for name in self._gaps if name not in self._dispatcher.workers]:
            del self._gaps[gone]
            self._recorder.forget(gone)
        for name, worker in self._dispatcher.workers.items():
            gaps = self._gaps.setdefault(name, Gaps())
            waits = (
                under_way.waiting[name] if worker.queue is None else worker.queue.waiting.counts()
            )
            found = gaps.look(self._received(name, waits, under_way.at[name]) if worker.up else {})
            if found:
                limit = self._bound(name, worker, found[0])
                self.gaps.append(GapSeen(name, found[0], limit))
                self.violations += limit is not None and found[0].tokens > limit
            for gap in found:
                for client in (gap.first, gap.second):
                    self.of_client[client] = max(self.of_client.get(client, 0.0), gap.tokens)
        self.gaps.sort(key=lambda seen: -(seen.gap.tokens / (seen.bound or 1e12)))

    def _received(
        self, worker: WorkerId, waits: Mapping[ClientId, int], at: Mapping[ClientId, int]
    ) -> dict[ClientId, float]:
        """What each client that waits there has had there, divided by its weight."""
        clients = self._recorder.clients()
        received = {}
        for name in waits:
            known = clients.get(name)
            had = known.received.get(worker, 0) if known else 0
            if self._dispatcher.ledger.label(name) != OTHER:
                received[name] = (had + at.get(name, 0)) / self._weight(name)
        return received

    def _bound(self, name: WorkerId, worker: Worker, gap: Gap) -> float | None:
        if worker.queue is None:
            return None
        policy = worker.queue.scheduler.policy
        quantum = 0
        if isinstance(policy, DLPM):
            full = policy.quantum_of(gap.first) / UNITS_PER_TOKEN
            quantum = round(full / self._weight(gap.first))
        return bound(
            self._scheduler,
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

    def _worker(self, known: tuple[WorkerId, Watch, Worker]) -> tuple[str, dict[str, object]]:
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

"""One gateway's part in an account that several keep: what it tells of its queues, and what it hears.

Only engines whose requests wait here, under a policy that can be shared, are told of; the others'
requests go to the engines at once, and what is fair there is so whoever sends them.
"""

from collections.abc import Mapping
from itertools import chain, islice

from fairhit.core.policy import SharingDeficits
from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.accounting.shared_ledger import LedgerUpdate, QuantumOf, Report
from fairhit.dispatch.dispatcher import Dispatcher
from fairhit.dispatch.engine import Engine

# Clients that one report names as waiting: with more, some count at this gateway only.
MAX_TOLD = 1024


class Shared:
    """The shared account as one gateway's queues know it. Who exchanges it, and when, is the host's."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def reports(self) -> dict[WorkerId, Report]:
        """What has been charged since the last ones, and who waits now. O(clients that wait)."""
        fleet = self._dispatcher.fleet.workers
        rooms = [self._dispatcher.queueing.late]
        rooms += [worker.queue.waiting for worker in fleet.values() if worker.queue is not None]
        waiting: dict[frozenset[str] | None, tuple[ClientId, ...]] = {}
        reports = {}
        for name, policy in self._policies().items():
            worker = fleet[name]
            if worker.models not in waiting:
                clients = chain.from_iterable([room.clients(worker) for room in rooms])
                waiting[worker.models] = tuple(islice(dict.fromkeys(clients), MAX_TOLD))
            reports[name] = Report(
                charged=policy.report(),
                waiting=self._with_pinned(waiting[worker.models], worker) if worker.is_open else (),
            )
        return reports

    @staticmethod
    def _with_pinned(waiting: tuple[ClientId, ...], worker: Engine) -> tuple[ClientId, ...]:
        """These clients, and who waits for this engine only."""
        assert worker.queue is not None, "only engines whose requests wait here are told of"
        pinned = tuple(worker.queue.waiting.pinned_clients())
        if not pinned:
            return waiting
        return tuple(islice(dict.fromkeys(chain(waiting, pinned)), MAX_TOLD))

    def quantum_of(self) -> QuantumOf:
        """Q_i in units, the same for every engine; there is one that is shared."""
        return next(iter(self._policies().values())).quantum_of

    def adopt(self, news: Mapping[WorkerId, LedgerUpdate]) -> None:
        """Go on by what the account says, the last reports included. O(clients in it)."""
        for name, policy in self._policies().items():
            heard = news.get(name)
            if heard is not None:
                # Where it drains its own go first: they cannot wait for those who wait elsewhere.
                drains = not self._dispatcher.workers[name].takes
                policy.adopt(heard.deficits, () if drains else heard.elsewhere)
                self._dispatcher.changed(name)

    def take_back(self, reports: Mapping[WorkerId, Report]) -> None:
        """They did not arrive: tell it all with the next. O(clients in them)."""
        for name, policy in self._policies().items():
            if name in reports:
                policy.take_back(reports[name].charged)

    def stand_alone(self) -> None:
        """Nobody can be heard: nobody waits elsewhere, and what was charged till now is not told."""
        for name, policy in self._policies().items():
            policy.report()
            policy.adopt({}, ())
            self._dispatcher.changed(name)

    def _policies(self) -> dict[WorkerId, SharingDeficits]:
        return {
            name: worker.queue.scheduler.policy
            for name, worker in self._dispatcher.fleet.workers.items()
            if worker.queue is not None
            and isinstance(worker.queue.scheduler.policy, SharingDeficits)
        }

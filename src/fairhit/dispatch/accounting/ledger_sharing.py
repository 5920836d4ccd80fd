"""A gateway's part in a shared ledger: reports of its queues' charges out, common deficits in.

Only engines whose requests wait here, under a policy that can be shared, take part. Other engines are sent
their requests at once and share fairly themselves, whichever gateway sends the requests.
"""

from collections.abc import Mapping
from itertools import chain, islice

from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.accounting.shared_ledger import LedgerReport, LedgerUpdate, QuantumOf
from fairhit.dispatch.dispatcher import Dispatcher
from fairhit.dispatch.engine import Engine

# Clients listed as waiting in one report: of more clients, some count as waiting at this gateway only.
MAX_REPORTED = 1024


class LedgerSharing:
    """Connects the ledgers of one gateway's queues to the shared ledger; the host exchanges the reports."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def reports(self) -> dict[WorkerId, LedgerReport]:
        """Return by engine the charges since the last reports and the waiting clients. O(waiting clients)."""
        engines = self._dispatcher.engines
        queues = [self._dispatcher.queue.unassigned]
        queues += [each.queue.waiting for each in engines.values() if each.queue is not None]
        waiting: dict[frozenset[str] | None, tuple[ClientId, ...]] = {}
        reports = {}
        for name, ledger in self._ledgers().items():
            engine = engines[name]
            if engine.models not in waiting:
                clients = chain.from_iterable([queue.clients(engine) for queue in queues])
                waiting[engine.models] = tuple(islice(dict.fromkeys(clients), MAX_REPORTED))
            reports[name] = LedgerReport(
                charged=ledger.report(),
                waiting=_with_pinned(waiting[engine.models], engine) if engine.is_open else (),
            )
        return reports

    def quantum_of(self) -> QuantumOf:
        """Return the function from clients to Q_i in units, equal for all engines; at least one is shared."""
        return next(iter(self._ledgers().values())).quantum_of

    def adopt(self, updates: Mapping[WorkerId, LedgerUpdate]) -> None:
        """Replace the queues' deficits by the ledger's, which include the last reports. O(clients in it)."""
        for name, ledger in self._ledgers().items():
            update = updates.get(name)
            if update is not None:
                # A draining engine serves its own clients first: they cannot wait for clients elsewhere.
                drains = not self._dispatcher.engines[name].accepts
                ledger.adopt(update.deficits, () if drains else update.elsewhere)
                self._dispatcher.changed(name)

    def take_back(self, reports: Mapping[WorkerId, LedgerReport]) -> None:
        """Include `reports`, which did not arrive, in the next ones. O(clients in them)."""
        for name, ledger in self._ledgers().items():
            if name in reports:
                ledger.take_back(reports[name].charged)

    def detach(self) -> None:
        """Continue without the ledger: drop unreported charges and the precedence of clients elsewhere."""
        for name, ledger in self._ledgers().items():
            ledger.report()
            ledger.adopt({}, ())
            self._dispatcher.changed(name)

    def _ledgers(self) -> dict[WorkerId, SharedDeficits]:
        return {
            name: ledger
            for name, engine in self._dispatcher.engines.items()
            if engine.queue is not None
            and isinstance(
                ledger := getattr(engine.queue.scheduler.policy, "ledger", None), SharedDeficits
            )
        }


def _with_pinned(waiting: tuple[ClientId, ...], engine: Engine) -> tuple[ClientId, ...]:
    """Return `waiting` and the clients with a ticket pinned to `engine`."""
    assert engine.queue is not None, "only engines with a queue here are reported"
    pinned = tuple(engine.queue.waiting.pinned_clients())
    if not pinned:
        return waiting
    return tuple(islice(dict.fromkeys(chain(waiting, pinned)), MAX_REPORTED))

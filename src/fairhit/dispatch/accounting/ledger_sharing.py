"""A gateway's part in a shared ledger: reports of its queue's charges out, common deficits in."""

from collections.abc import Mapping
from itertools import islice

from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import WorkerId
from fairhit.dispatch.accounting.shared_ledger import LedgerReport, LedgerUpdate, QuantumOf
from fairhit.dispatch.dispatcher import Dispatcher

# Clients listed as waiting in one report: of more clients, some count as waiting at this gateway only.
MAX_REPORTED = 1024
# The queue has one ledger for all engines; the shared ledger may keep several apart, by name.
FLEET: WorkerId = "fleet"


class LedgerSharing:
    """Connects the ledger of one gateway's queue to the shared ledger; the host exchanges the reports."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        if (ledger := self._ledger()) is not None:
            ledger.report()  # collects charges from now on

    def reports(self) -> dict[WorkerId, LedgerReport]:
        """Return the charges since the last report and the waiting clients. O(clients listed)."""
        ledger = self._ledger()
        if ledger is None:
            return {}
        waiting = self._dispatcher.ledger.waiting_by_client() if self._dispatcher.ready() else ()
        return {
            FLEET: LedgerReport(
                charged=ledger.report(), waiting=tuple(islice(waiting, MAX_REPORTED))
            )
        }

    def quantum_of(self) -> QuantumOf:
        """Return the function from clients to Q_i in units; the ledger is shared."""
        ledger = self._ledger()
        assert ledger is not None
        return ledger.quantum_of

    def adopt(self, updates: Mapping[WorkerId, LedgerUpdate]) -> None:
        """Replace the queue's deficits by the ledger's, which include the last report. O(clients in it)."""
        ledger, update = self._ledger(), updates.get(FLEET)
        if ledger is not None and update is not None:
            ledger.adopt(update.deficits, update.elsewhere)
            self._dispatcher.refill()

    def take_back(self, reports: Mapping[WorkerId, LedgerReport]) -> None:
        """Include `reports`, which did not arrive, in the next ones. O(clients in them)."""
        ledger = self._ledger()
        if ledger is not None and FLEET in reports:
            ledger.take_back(reports[FLEET].charged)

    def detach(self) -> None:
        """Continue without the ledger: drop unreported charges and the precedence of clients elsewhere."""
        ledger = self._ledger()
        if ledger is not None:
            ledger.report()
            ledger.adopt({}, ())
            self._dispatcher.refill()

    def _ledger(self) -> SharedDeficits | None:
        """Return the ledger of a queue whose policy can be shared."""
        return self._dispatcher.queue.deficits if self._dispatcher.queue.queues else None

"""A gateway's part in a shared ledger: reports of its queue's charges out, common deficits in."""

from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.dispatch.accounting.shared_ledger import LedgerReport, LedgerUpdate, QuantumOf
from fairhit.dispatch.dispatcher import Dispatcher


class LedgerSharing:
    """Connects the ledger of one gateway's queue to the shared ledger; the host exchanges the reports."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        if (ledger := self._ledger()) is not None:
            ledger.report()  # collects charges from now on

    def report(self) -> LedgerReport | None:
        """Return the charges since the last report and the waiting clients. O(clients listed).

        None if no request waits here, or its policy cannot be shared.
        """
        ledger = self._ledger()
        if ledger is None:
            return None
        return LedgerReport(charged=ledger.report(), waiting=self._dispatcher.queue.lanes.clients())

    def quantum_of(self) -> QuantumOf:
        """Return the function from clients to Q_i in units; the ledger is shared."""
        ledger = self._ledger()
        assert ledger is not None
        return ledger.quantum_of

    def adopt(self, update: LedgerUpdate) -> None:
        """Replace the queue's deficits by the ledger's, which include the last report. O(clients in it)."""
        ledger = self._ledger()
        if ledger is not None:
            ledger.adopt(update.deficits, update.elsewhere)
            self._dispatcher.refill()

    def take_back(self, report: LedgerReport) -> None:
        """Include `report`, which did not arrive, in the next one. O(clients in it)."""
        ledger = self._ledger()
        if ledger is not None:
            ledger.take_back(report.charged)

    def detach(self) -> None:
        """Continue without the ledger: drop unreported charges and the precedence of clients elsewhere."""
        ledger = self._ledger()
        if ledger is not None:
            ledger.report()
            ledger.adopt({}, {})
            self._dispatcher.refill()

    def _ledger(self) -> SharedDeficits | None:
        """Return the ledger of a queue whose policy can be shared."""
        return self._dispatcher.queue.deficits if self._dispatcher.queue.queues else None

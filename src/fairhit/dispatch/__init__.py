"""The gateway's core without I/O: events in, and which request to send to which engine out.

Read `dispatcher` first; `queue` is the one queue of all engines, `lane` its part for the same engines,
`delay` a rule about which engine a request waits for; the ledgers are in `accounting`.
"""

from fairhit.dispatch.accounting.ledger_sharing import LedgerSharing
from fairhit.dispatch.accounting.shared_ledger import LedgerReport, LedgerUpdate, SharedLedger
from fairhit.dispatch.dispatcher import Dispatcher
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.queue_rules import MAX_HOLD_US, QUEUE_SCHEDULERS, QueueRules
from fairhit.dispatch.ticket import Ticket, TicketState, Usage

__all__ = [
    "MAX_HOLD_US",
    "QUEUE_SCHEDULERS",
    "Dispatcher",
    "Engine",
    "LedgerReport",
    "LedgerSharing",
    "LedgerUpdate",
    "QueueRules",
    "SharedLedger",
    "Ticket",
    "TicketState",
    "Usage",
]

"""The gateway's state machine: events in, where and when to send each request out. No I/O."""

from fairhit.dispatch.accounting.ledger_sharing import Shared
from fairhit.dispatch.accounting.shared_ledger import Accounts, LedgerUpdate, Report
from fairhit.dispatch.dispatcher import Dispatcher
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.queue_rules import QUEUE_SCHEDULERS, QueueRules
from fairhit.dispatch.ticket import Ticket, TicketState, Usage

__all__ = [
    "QUEUE_SCHEDULERS",
    "Accounts",
    "Dispatcher",
    "Engine",
    "LedgerUpdate",
    "QueueRules",
    "Report",
    "Shared",
    "Ticket",
    "TicketState",
    "Usage",
]

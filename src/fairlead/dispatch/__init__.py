"""The gateway's state machine: events in, where and when to send each request out. No I/O."""

from fairlead.dispatch.accounts import Accounts, News, Report
from fairlead.dispatch.dispatcher import Dispatcher
from fairlead.dispatch.fleet import Worker
from fairlead.dispatch.rules import QUEUE_SCHEDULERS, QueueRules
from fairlead.dispatch.sharing import Shared
from fairlead.dispatch.tickets import State, Ticket, Usage

__all__ = [
    "QUEUE_SCHEDULERS",
    "Accounts",
    "Dispatcher",
    "News",
    "QueueRules",
    "Report",
    "Shared",
    "State",
    "Ticket",
    "Usage",
    "Worker",
]

"""The gateway's state machine: events in, where and when to send each request out. No I/O."""

from fairlead.dispatch.dispatcher import TOKEN_BYTES, Dispatcher
from fairlead.dispatch.tickets import State, Ticket, Usage
from fairlead.dispatch.workers import Worker

__all__ = ["TOKEN_BYTES", "Dispatcher", "State", "Ticket", "Usage", "Worker"]

"""A request between its arrival and its end, and what its engine said it took."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.request import Request, WorkerId

if TYPE_CHECKING:
    from fairlead.dispatch.worker_queue import WorkerQueue


class State(Enum):
    """Where a ticket is."""

    QUEUED = auto()  # at the gateway, until a worker has room
    WAITING = auto()  # with a worker that has not answered yet
    STARTED = auto()  # the caller has its first byte: it can no longer move
    ENDED = auto()


class Usage(NamedTuple):
    """What an engine says a request took; `cached_len` is None where it does not report it."""

    prompt_len: int
    output_len: int
    cached_len: int | None
    # Whether the engine reports cached tokens here for a flag that holds for its other paths, too.
    by_flag: bool = True


@dataclass(eq=False, slots=True)
class Ticket:
    """One request on its way. `output_len` is counted as the answer streams by.

    `worker` is "" while it waits late bound. What stands below `tried` is its queue's own business.
    """

    request: Request
    model: str | None
    text_len: int  # bytes that `request.input_len` was estimated from; 0: it was counted
    worker: WorkerId = ""
    matched_len: int = 0
    state: State = State.QUEUED
    output_len: int = 0
    tried: tuple[WorkerId, ...] = ()
    streams: bool = False  # its answer comes piece by piece, so that its first byte is seen
    is_told: bool = True  # False: to be sent, and the host has yet to hear of it
    queue: "WorkerQueue | None" = None
    booked: Request | None = None  # as the queue's scheduler knows it; None: it does not
    evictions: int = 0  # the queue's when it was bound
    held: int = 0  # leading units of its prompt that the index holds for its worker, as of then
    number: int = 0  # the window's
    charged_len: int = 0  # outputs that were charged
    # Once it has ended: prompt tokens it was charged for, 0 if nothing was served, and the estimate.
    settled_len: int = 0
    estimated_len: int = 0

    @property
    def extend_len(self) -> int:
        """Prompt tokens the worker was assumed to compute; the last one is never cached."""
        return max(1, self.request.input_len - self.matched_len)

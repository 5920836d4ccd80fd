"""A request between its arrival and its end, and what its engine said it took."""

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from fairhit.core.request import Request, WorkerId

if TYPE_CHECKING:
    from fairhit.dispatch.engine_queue import EngineQueue


class TicketState(Enum):
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


class Ticket:
    """One request on its way. `output_len` is counted as the answer streams by.

    `worker` is "" while it waits late bound. No dataclass: of those, making one is never compiled.
    """

    __slots__ = (
        "answers", "booked", "charged_len", "estimated_len", "evictions", "held", "is_told", "matched_len",
        "model", "number", "output_len", "pinned", "queue", "request", "settled_len", "state", "streams",
        "text_len", "tried", "worker",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        model: str | None,
        text_len: int,
        *,
        streams: bool = False,
        answers: int = 1,
    ) -> None:
        self.request = request
        self.model = model
        # Bytes that `request.input_len` was estimated from; 0: it was counted.
        self.text_len = text_len
        self.worker: WorkerId = ""
        self.matched_len = 0
        self.state = TicketState.QUEUED
        self.output_len = 0
        self.tried: tuple[WorkerId, ...] = ()
        self.streams = streams  # its answer comes piece by piece, so that its first byte is seen
        self.answers = answers  # asked for, each with outputs of its own; 0: it has no outputs
        self.is_told = True  # False: to be sent, and the host has yet to hear of it
        self.pinned = False  # bound to an engine that no other may take it from
        # Its queue's own business.
        self.queue: EngineQueue | None = None
        self.booked: Request | None = None  # as the queue's scheduler knows it; None: it does not
        self.evictions = 0  # the queue's when it was bound
        self.held = 0  # leading units of its prompt that the index holds for its worker, as of then
        self.number = 0  # the window's
        self.charged_len = 0  # outputs that were charged
        # Once it has ended: prompt tokens it was charged for, 0 if nothing was served, and the estimate.
        self.settled_len = self.estimated_len = 0

    @property
    def extend_len(self) -> int:
        """Prompt tokens the worker was assumed to compute; the last one is never cached."""
        return max(1, self.request.input_len - self.matched_len)

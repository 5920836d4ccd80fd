"""A ticket: one request between its arrival at the dispatcher and its end, with what it was charged."""

from enum import Enum, auto
from typing import NamedTuple, Protocol

from fairhit.core.request import Request, WorkerId


class TicketState(Enum):
    """The states of a ticket; QUEUED -> WAITING -> STARTED -> ENDED, and from WAITING back to QUEUED."""

    QUEUED = auto()  # waits at the dispatcher, for any engine of its lane
    WAITING = auto()  # sent to an engine that has not answered yet
    STARTED = auto()  # the client has the first byte of the answer: the request can no longer move
    ENDED = auto()


class Usage(NamedTuple):
    """Tokens of one request as the engine reports them; `cached_len` None: the engine does not report it."""

    prompt_len: int
    output_len: int
    cached_len: int | None
    # The engine has one flag for reporting cached tokens, and it holds for this endpoint.
    by_flag: bool = True


class TicketLane(Protocol):
    """Where a ticket waits, and its charges are kept until it ends: see `lane`."""

    def leave(self, ticket: "Ticket") -> None:
        """Remove a ticket that waits."""
        ...

    def admit(self, ticket: "Ticket") -> None:
        """Charge a ticket that is sent."""
        ...

    def emitted(self, ticket: "Ticket") -> None:
        """Charge the outputs that were counted since the last call."""
        ...

    def ended(self, ticket: "Ticket", *, extend_len: int, finished: bool) -> None:
        """Replace the estimated charge by `extend_len` computed tokens and forget the ticket."""
        ...


class Ticket:
    """A request, its engine, and its charges.

    `worker` is "" while the ticket waits. Not a dataclass: mypyc does not compile their constructors.
    """

    __slots__ = (
        "answers", "charged_len", "estimated_len", "final_len", "held", "indexed", "is_notified", "lane",
        "matched_len", "model", "number", "output_len", "pinned", "request", "scheduled", "state",
        "streams", "text_len", "tried", "worker",
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
        # Bytes from which `request.input_len` was estimated; 0: the tokens were counted.
        self.text_len = text_len
        self.worker: WorkerId = ""
        self.matched_len = 0
        self.state = TicketState.QUEUED
        self.output_len = 0  # outputs counted so far, while the answer streams
        self.tried: tuple[WorkerId, ...] = ()  # engines that failed it
        self.streams = streams  # the answer is streamed: its first byte shows that the request runs
        self.answers = answers  # sequences asked for; 0: the endpoint has no outputs (embeddings)
        self.is_notified = True  # False: ready to be sent, and `on_ready` has not been called yet
        self.pinned: WorkerId = ""  # the only engine that may serve it
        # The engine for which it is held now; "": it was; None: it was not (see `delay`).
        self.held: WorkerId | None = None
        # Written by its lane only; None: it does not wait, or the engine's requests do not wait here.
        self.lane: TicketLane | None = None
        self.scheduled: Request | None = None  # the request as the lane's policy knows it
        self.indexed = 0  # leading prompt units that the prefix index then had for the engine
        self.number = 0  # its number in the concurrency limit
        self.charged_len = 0  # outputs charged so far
        # After the end: prompt tokens charged, 0 if nothing was served; and what had been estimated.
        self.final_len = self.estimated_len = 0

    @property
    def extend_len(self) -> int:
        """Prompt tokens that the engine was assumed to compute; the last token is never cached."""
        return max(1, self.request.input_len - self.matched_len)

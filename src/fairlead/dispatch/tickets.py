"""A request between its arrival and its end, and what its engine said it took."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from fairlead.core.request import Request, WorkerId


class State(Enum):
    """Where a ticket is."""

    WAITING = auto()  # with a worker that has not answered yet
    STARTED = auto()  # the caller has its first byte: it can no longer move
    ENDED = auto()


class Usage(NamedTuple):
    """What an engine says a request took; `cached_len` is None where it does not report it."""

    prompt_len: int
    output_len: int
    cached_len: int | None


@dataclass(eq=False, slots=True)
class Ticket:
    """One request on its way. `output_len` is counted as the answer streams by."""

    request: Request
    model: str | None
    text_len: int  # bytes that `request.input_len` was estimated from; 0: it was counted
    worker: WorkerId = ""
    matched_len: int = 0
    state: State = State.WAITING
    output_len: int = 0
    tried: tuple[WorkerId, ...] = ()

    @property
    def extend_len(self) -> int:
        """Prompt tokens the worker was assumed to compute; the last one is never cached."""
        return max(1, self.request.input_len - self.matched_len)

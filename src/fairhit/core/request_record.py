"""One request in a scheduler: where it is, and what it was charged for."""

from enum import Enum
from typing import NamedTuple

from fairhit.core.request import Request

# A request preempted within this many looks is not preempted again: it would only be recomputed
# over and over (DESIGN 3.1, no ping-pong).
CALM_LOOKS = 8


class RequestState(Enum):
    """Where a request is."""

    WAITING = "waiting"  # known to the policy
    HELD = "held"  # waits for something else than memory
    RUNNING = "running"
    PREEMPTED = "preempted"  # paid for, and first in line


class Prompt(NamedTuple):
    """The length of a prompt in tokens, and how many of them were computed."""

    input_len: int
    extend_len: int


class RequestRecord:
    """A request from `add` to `finish` or `cancel`."""

    __slots__ = (
        "extend_len",
        "input_len",
        "output_len",
        "paid",
        "preempted_at",
        "request",
        "state",
        "ticked",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = RequestState.WAITING
        self.paid = False
        self.input_len = request.input_len  # as it was charged
        self.extend_len = 0  # the same, once paid
        self.output_len = 0
        self.preempted_at = -CALM_LOOKS
        self.ticked = 0  # while it runs: the tick up to which `output_len` is true

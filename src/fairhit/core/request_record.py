"""The record of one request in a queue: its state, and what it was charged for."""

from enum import Enum

from fairhit.core.request import Request
from fairhit.core.service import Cost

# A request preempted within this many scheduling passes is not preempted again: it would only be
# recomputed over and over (DESIGN 3.1, no ping-pong).
PREEMPTION_COOLDOWN_PASSES = 8


class RequestState(Enum):
    """The states of a request between `add` and `finish` or `cancel`."""

    WAITING = "waiting"  # known to the policy
    BLOCKED = "blocked"  # waits for something else than memory
    RUNNING = "running"
    PREEMPTED = "preempted"  # charged already, and proposed first


class RequestRecord:
    """A request from `add` to `finish` or `cancel`."""

    __slots__ = (
        "cost",
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
        self.paid = False  # the prompt was charged
        self.cost: Cost | None = None  # by which, once paid; None: by none
        self.input_len = request.input_len  # as charged
        self.extend_len = 0  # as charged, once paid
        self.output_len = 0
        self.preempted_at = -PREEMPTION_COOLDOWN_PASSES
        self.ticked = 0  # while running: the tick up to which `output_len` is true

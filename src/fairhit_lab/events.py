"""Events of requests and workers, in causal order: metrics, figures and tests read nothing else (DESIGN 6.2).

Values only. `worker` is the replica's number; `step` counts that replica's forward passes from 0;
times are integer microseconds. Clients and requests appear by id, so a file of events is enough.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from fairhit.core.request import ClientId, RequestId

# Why a request was rejected. `parent`: what it depends on was rejected or cancelled.
Reason = Literal["too-large", "rpm", "parent", "queue-full"]


class Dispatch(NamedTuple):
    """The router sent the request to the worker; None: to a queue that all workers share."""

    t_us: int
    worker: int | None
    request: RequestId
    client: ClientId


class Enqueue(NamedTuple):
    """The request waits at the worker."""

    t_us: int
    worker: int
    request: RequestId
    client: ClientId


class Reject(NamedTuple):
    """The request will not be served; `worker` is None if it never reached one."""

    t_us: int
    worker: int | None
    request: RequestId
    client: ClientId
    reason: Reason


class Admit(NamedTuple):
    """The request runs from step `step` on, which starts now; computes `extend_len` of `input_len` tokens.

    `again`: it was preempted, or admitted at a worker that failed since, so what is computed is the
    system's cost and no client's service.
    """

    t_us: int
    worker: int
    request: RequestId
    client: ClientId
    step: int
    extend_len: int
    input_len: int
    again: bool = False


class Decode(NamedTuple):
    """`passes` equal forward passes ended, each of which emitted `counts` tokens per client.

    `step` is the first of them and `t_us` the end of the last. Pass j (from 0) ended at `end_us(j)`:
    they are contiguous, and each lasts `growth_ps` longer than the one before it.
    """

    t_us: int
    worker: int
    step: int
    counts: Mapping[ClientId, int]
    passes: int
    start_ps: int
    pass_ps: int
    growth_ps: int

    def end_us(self, j: int) -> int:
        """When pass `j` ended."""
        return (self.start_ps + after(j + 1, self.pass_ps, self.growth_ps)) // PS_PER_US


class FirstToken(NamedTuple):
    """The pass that ends now emitted its first token. Follows that pass's `Decode`, once a request."""

    t_us: int
    worker: int
    request: RequestId
    client: ClientId


class Finish(NamedTuple):
    """The request emitted its last token, the `output_len`-th, in step `step`, which ends now."""

    t_us: int
    worker: int
    request: RequestId
    client: ClientId
    step: int
    output_len: int


class Cancel(NamedTuple):
    """The caller cancelled the request; `worker` is None if it had not been dispatched."""

    t_us: int
    worker: int | None
    request: RequestId
    client: ClientId


class Preempt(NamedTuple):
    """The request was running and waits again; or its worker failed, and it is dispatched again."""

    t_us: int
    worker: int
    request: RequestId
    client: ClientId
    step: int


class Refill(NamedTuple):
    """The worker's scheduler ran `rounds` (k) rounds of refill in this scheduling pass."""

    t_us: int
    worker: int
    rounds: int


class Evict(NamedTuple):
    """`tokens` cached tokens left the worker's memory."""

    t_us: int
    worker: int
    tokens: int


class WorkerUpOrDown(NamedTuple):
    """The worker came up or went down."""

    t_us: int
    worker: int
    up: bool


Event = (
    Dispatch
    | Enqueue
    | Reject
    | Admit
    | Decode
    | FirstToken
    | Finish
    | Cancel
    | Preempt
    | Refill
    | Evict
    | WorkerUpOrDown
)


class Observer(Protocol):
    """Receives every event, in causal order."""

    def __call__(self, event: Event, /) -> None:
        """`event` happened."""
        ...


@runtime_checkable
class Taking(Protocol):
    """An observer that takes the fields of an event, so that no event has to be made of them."""

    takes: Mapping[type, Callable[..., None]]  # by kind of event: what is called with its fields


PS_PER_US = 10**6


def after(passes: int, pass_ps: int, growth_ps: int) -> int:
    """Duration of `passes` contiguous passes in picoseconds: a sum in closed form, exact. O(1)."""
    return passes * pass_ps + growth_ps * (passes * (passes - 1) // 2)

"""A trace: what clients ask for and when, one row a request (DESIGN 6.1)."""

from dataclasses import dataclass

from fairlead.core.request import ClientId, RequestId
from fairlead.core.runs import Runs


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceRow:
    """One request as its caller means it; the simulator makes a `Request` of it when it starts.

    It starts at `arrival_us` or when the last of `after` finishes, whichever is later. It emits
    `output_len` tokens and asks for room for `max_tokens`. `output`, where known, stays cached
    behind the prompt. `weight` is in millionths, None where the row does not say.
    """

    id: RequestId
    client: ClientId
    arrival_us: int
    prompt: Runs
    output_len: int
    max_tokens: int
    output: Runs | None = None
    program: str | None = None
    after: tuple[RequestId, ...] = ()
    weight: int | None = None
    cancel_us: int | None = None

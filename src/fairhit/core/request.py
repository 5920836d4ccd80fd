"""What a client asks for: an immutable value, the same in simulator, gateway and engine."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

ClientId: TypeAlias = str
RequestId: TypeAlias = str
WorkerId: TypeAlias = str
# One element of a prompt as the cache sees it: a token, or the chained hash of a block of tokens.
Unit: TypeAlias = Hashable


# Final instead of frozen: the type checker sees to it, and making one takes a third of the time.
@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """One request, which never changes; two requests are the same only if they are the same object.

    `prompt` is what a prefix cache can look up: the prompt's tokens for a token-level cache, the
    chained hashes of its full blocks for a block cache; within one scheduler all are tuples or all are
    lists, because slices of them are compared. `input_len` is the prompt's length in
    tokens, `max_tokens` the most it may emit. `order` is its place in the order of arrival: every
    tie anywhere is broken by it, so it must be unique within one scheduler. Requests with one `routing_key`
    belong together, for a router that looks at it; empty: the request belongs to no other.
    """

    id: Final[RequestId]
    client: Final[ClientId]
    prompt: Final[Sequence[Unit]]
    input_len: Final[int]
    max_tokens: Final[int]
    order: Final[int]
    arrival_us: Final[int] = 0
    routing_key: Final[str] = ""

    def __post_init__(self) -> None:
        assert self.input_len >= 1, self.input_len
        assert self.max_tokens >= 1, self.max_tokens

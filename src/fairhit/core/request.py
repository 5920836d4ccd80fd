"""A request of a client: an immutable value, the same in simulator, gateway and engine."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

ClientId: TypeAlias = str
RequestId: TypeAlias = str
WorkerId: TypeAlias = str
# One element of a prompt as the cache sees it: a token, or the chained hash of a block of tokens.
Unit: TypeAlias = Hashable


# Final instead of frozen: the type checker enforces it, and construction takes a third of the time.
@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """An immutable request; two requests are equal only if they are the same object.

    `prompt` is what a prefix cache can look up: the prompt's tokens for a token-level cache, the
    chained hashes of its full blocks for a block cache; within a queue all prompts are tuples or all
    are lists, because slices of them are compared. `input_len` is the prompt's length in tokens,
    `max_tokens` the most the request may emit. `order` is its position in the order of arrival: it
    breaks every tie, so it must be unique within a queue. Requests with the same `routing_key` belong
    together for a router that uses it; a request with an empty one belongs to no other.
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

"""The vLLM scheduler as its waiting queue sees it."""

from collections.abc import Iterable
from typing import Any, Protocol

from fairlead.core.request import Request, RequestId, Unit
from fairlead.engines.adapter_turns import Taker

# Blocked requests asked per step whether they are ready: bounds the step, not the wait.
POLLS_PER_STEP = 8
# Skips after which a look ends; each costs vLLM a lookup, and us putting it back.
SKIPS_PER_LOOK = 64
# Requests put aside unasked in one look, as their LoRA adapter found no slot in it; that is cheaper.
PARKED_PER_LOOK = 256

# vLLM's own methods that make a blocked request ready; 0.15 has none, and does so when it is offered one.
PROMOTIONS = ("_handle_blocked_waiting_request", "_try_promote_blocked_waiting_request")


class Host(Protocol):
    """What the queue asks of the vLLM scheduler it stands in, and tells it."""

    names_adapters: bool  # whether who is not named is its LoRA adapter

    def has_free_slot(self) -> bool:
        """Whether one more request may run. Without a free slot there is no look and no refill."""
        ...

    def promote(self, request: Any) -> bool:
        """Make a blocked request ready if it can be; whether vLLM should be offered it now."""
        ...

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """What the prefix cache can hold of the request's prompt."""
        ...

    def adapters(self) -> tuple[int, dict[RequestId, Taker]]:
        """How many LoRA adapters may run at a time, and who runs with one. O(running)."""
        ...

    def holding(self) -> Iterable[Any]:
        """Requests with a LoRA adapter that vLLM itself queues, and offers before it asks the queue."""
        ...

    def goes_on(self, request: Any) -> bool:
        """Whether vLLM removes a streaming session that it has only just queued for its next turn."""
        ...

    def arrived(self, request: Request) -> None:
        """It waits from now on."""
        ...

    def admitted(self, request: Request, *, extend_len: int, cached_len: int) -> None:
        """It runs for the first time and was charged."""
        ...

    def dropped(self, request: Request) -> None:
        """It left the queue for good, without running."""
        ...

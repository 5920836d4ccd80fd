"""LoRA slots in SGLang: requests skipped for want of a slot, and the slot rotation among adapters.

SGLang computes a few adapters at a time, of which the model itself is one. A pinned adapter has a slot of its
own for good: it takes no part in the rotation.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from fairhit.core.request import Request, RequestId
from fairhit.engines.lora_slots import LoraSlotRotation, Taker
from fairhit.engines.skipped_requests import SkippedRequests

# Requests skipped for want of a slot per pass, at most. Each is skipped once until its adapter has a slot.
MAX_SKIPPED_PER_PASS = 1000


class LoraSchedulerView(Protocol):
    """The LoRA state of the SGLang scheduler."""

    def slots(self) -> int:
        """Return how many unpinned adapters may run at once; loading and unloading change it. O(1)."""
        ...

    def is_pinned(self, req: Any) -> bool:
        """Return whether the request's adapter has a slot for good. O(1)."""
        ...


class SglangLoraSlots:
    """Requests skipped for want of a LoRA slot, and the rotation. `Any` is SGLang's request."""

    def __init__(self, engine: LoraSchedulerView, rotation: LoraSlotRotation) -> None:
        self._engine, self._rotation = engine, rotation
        self._skipped: SkippedRequests[Request] = SkippedRequests()
        self._without_slot: dict[str | None, None] = {}  # adapters that found no slot in this pass
        self._skipped_in_pass = 0
        # Pinned adapters of skipped requests.
        self._pinned: dict[str | None, None] = {}

    @property
    def rotations(self) -> int:
        """Return how often an adapter was drained for another one. O(1)."""
        return self._rotation.rotations

    @property
    def is_pass_over(self) -> bool:
        """True if MAX_SKIPPED_PER_PASS requests were skipped in this pass. O(1)."""
        return self._skipped_in_pass >= MAX_SKIPPED_PER_PASS

    @property
    def is_contended(self) -> bool:
        """True if a request waits for a slot; `begin_pass` then needs the running requests. O(1)."""
        return self._rotation.is_contended

    def begin_pass(self, running: Iterable[tuple[Request, Any]]) -> list[Request]:
        """Begin a scheduling pass: rotate slots if contended, and return the skipped requests to retry."""
        self._without_slot, self._skipped_in_pass = {}, 0
        if self._rotation.is_contended:
            takers = {
                ours.id: _taker(ours, req)
                for ours, req in running
                if not self._engine.is_pinned(req)
            }
            self._rotation.begin_pass(self._engine.slots(), takers)
        # Requests with a reserved slot come first, so that they use it.
        first = [
            request
            for taker in self._rotation.reserved
            for request in self._skipped.take_like(taker)
        ]
        return first + self._skipped.take(self._retry_limit)

    def bars(self, req: Any) -> bool:
        """Return whether the request's adapter has no slot in this pass, so that SGLang need not be asked."""
        if req.lora_id in self._without_slot:
            return True
        return self._rotation.forbids(req.lora_id) and not self._engine.is_pinned(req)

    def on_no_slot(self, req: Any) -> None:
        """Record that SGLang skipped a request for want of a slot, as it would all others of its adapter."""
        self._without_slot[req.lora_id] = None
        self._rotation.on_no_slot()

    def skip(self, ours: Request, req: Any, *, is_preempted: bool) -> None:
        """Keep a request out of the passes until it is retried. O(1)."""
        if self._engine.is_pinned(req):
            self._pinned[req.lora_id] = None
        self._skipped.add(ours.id, _taker(ours, req), ours, is_preempted=is_preempted)
        self._skipped_in_pass += 1

    def _retry_limit(self, taker: Taker) -> int:
        """Return how many of a group to retry in a pass: none while other adapters hold the slots. O(1)."""
        return int(taker.adapter in self._pinned or not self._rotation.forbids(taker.adapter))

    # -- requests -------------------------------------------------------------------------------

    def on_arrival(self, ours: Request, req: Any) -> None:
        """Record that a request waits: for the first time, or retracted. O(1)."""
        if not self._engine.is_pinned(req):
            self._rotation.add_waiting(ours.id, _taker(ours, req))

    def on_admit(self, ours: Request, req: Any, extend_len: int) -> list[Request]:
        """Record that a request runs; return skipped requests with the same taker to try now. O(returned)."""
        taker = _taker(ours, req)
        if not self._engine.is_pinned(req):
            self._rotation.on_admit(ours.id, taker, extend_len)
        return self._skipped.take_like(taker)

    def on_output(self, name: RequestId, tokens: int) -> None:
        """Count output tokens of a running request. O(1)."""
        if self._rotation.is_contended:
            self._rotation.on_output(name, tokens)

    def remove(self, name: RequestId) -> None:
        """Remove every record of a request that ended, waiting or not. O(1)."""
        self._skipped.remove(name)
        self._rotation.remove(name)

    # -- audits ---------------------------------------------------------------------------------

    def skipped(self) -> list[RequestId]:
        """Return the names of the skipped requests. O(returned)."""
        return self._skipped.names()

    def differences(
        self, waiting: Mapping[RequestId, tuple[Request, Any]], live: Collection[RequestId]
    ) -> Iterator[str]:
        """Yield each record that contradicts SGLang's; for audits. O(waiting + live)."""
        takers = {
            name: _taker(ours, req)
            for name, (ours, req) in waiting.items()
            if not self._engine.is_pinned(req)
        }
        yield from self._rotation.differences(takers, perhaps={}, live=live)


def _taker(ours: Request, req: Any) -> Taker:
    return Taker(ours.client, req.lora_id)

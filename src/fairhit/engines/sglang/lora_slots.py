"""LoRA slots in SGLang: who has none and is not asked for, and which adapter gives way to another.

SGLang computes so many adapters at a time, the model itself being one. A pinned adapter has a slot of its
own for good: it neither waits for one nor holds one that others could have, and takes no turns.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from fairhit.core.request import Request, RequestId
from fairhit.engines.lora_slots import LoraSlotRotation, Taker
from fairhit.engines.skipped_requests import SkippedRequests

# Set aside in one look, at most. Each is set aside once until its adapter has a slot, so this may be many.
ASIDE_PER_LOOK = 1000


class LoraSchedulerView(Protocol):
    """What is asked of the SGLang scheduler where it has LoRA adapters."""

    def slots(self) -> int:
        """How many adapters run at once besides those pinned; loading and unloading change it. O(1)."""
        ...

    def is_pinned(self, req: Any) -> bool:
        """Whether its adapter has a slot for good. O(1)."""
        ...


class SglangLoraSlots:
    """Those set aside for want of a slot, and the turns. `Any` is SGLang's request, `Request` is ours."""

    def __init__(self, host: LoraSchedulerView, turns: LoraSlotRotation) -> None:
        self._host, self._turns = host, turns
        self._skipped: SkippedRequests[Request] = SkippedRequests()
        self._full: dict[str | None, None] = {}  # adapters that found no slot in this look
        self._aside = 0  # set aside in this look
        self._pinned: dict[
            str | None, None
        ] = {}  # adapters set aside though they have a slot for good

    def __len__(self) -> int:
        """Who is set aside. O(1)."""
        return len(self._skipped)

    @property
    def turns(self) -> int:
        """How often an adapter gave way. O(1)."""
        return self._turns.rotations

    @property
    def is_look_over(self) -> bool:
        """Whether this look has set aside enough. O(1)."""
        return self._aside >= ASIDE_PER_LOOK

    @property
    def needs_running(self) -> bool:
        """Whether `begin` is to be told who runs. O(1)."""
        return self._turns.is_contended

    def begin(self, running: Iterable[tuple[Request, Any]]) -> list[Request]:
        """A look begins, perhaps an adapter gives way; whom to try in it: one of each that had no slot."""
        self._full, self._aside = {}, 0
        if self._turns.is_contended:
            takers = {
                ours.id: _taker(ours, req) for ours, req in running if not self._host.is_pinned(req)
            }
            self._turns.begin_pass(self._host.slots(), takers)
        awaited = self._turns.reserved  # first, lest they miss the slots that are kept for them
        first = [request for taker in awaited for request in self._skipped.take_like(taker)]
        return first + self._skipped.take(self._retry_limit)

    def lacks(self, req: Any) -> bool:
        """Whether SGLang need not be asked for it: it would be passed over, or is not to have a slot now."""
        if req.lora_id in self._full:
            return True
        return self._turns.forbids(req.lora_id) and not self._host.is_pinned(req)

    def found_none(self, req: Any) -> None:
        """SGLang passed it over for want of a slot, and would in this look all that want its adapter."""
        self._full[req.lora_id] = None
        self._turns.on_no_slot()

    def set_aside(self, ours: Request, req: Any, *, is_paid: bool) -> None:
        """It is out of the look, until one like it is tried. O(1)."""
        if self._host.is_pinned(req):
            self._pinned[req.lora_id] = None
        self._skipped.add(ours.id, _taker(ours, req), ours, is_preempted=is_paid)
        self._aside += 1

    def _retry_limit(self, taker: Taker) -> int:
        """Return how many of a group to retry in a pass: none while other adapters hold the slots. O(1)."""
        return int(taker.adapter in self._pinned or not self._turns.forbids(taker.adapter))

    # -- who comes and goes ---------------------------------------------------------------------

    def wants(self, ours: Request, req: Any) -> None:
        """It waits: for the first time, or retracted. O(1)."""
        if not self._host.is_pinned(req):
            self._turns.add_waiting(ours.id, _taker(ours, req))

    def admitted(self, ours: Request, req: Any, extend_len: int) -> list[Request]:
        """It runs and `extend_len` is charged for it; more of its like, to be tried now. O(returned)."""
        taker = _taker(ours, req)
        if not self._host.is_pinned(req):
            self._turns.on_admit(ours.id, taker, extend_len)
        return self._skipped.take_like(taker)

    def emitted(self, name: RequestId, tokens: int) -> None:
        """It emitted outputs. O(1)."""
        if self._turns.is_contended:
            self._turns.on_output(name, tokens)

    def ended(self, name: RequestId) -> None:
        """Remove what is known of a request that ended, waiting or not. O(1)."""
        self._skipped.remove(name)
        self._turns.remove(name)

    # -- audits ---------------------------------------------------------------------------------

    def aside(self) -> list[RequestId]:
        """The names of those set aside. O(returned)."""
        return self._skipped.names()

    def differences(
        self, waiting: Mapping[RequestId, tuple[Request, Any]], live: Collection[RequestId]
    ) -> Iterator[str]:
        """Each record that contradicts SGLang's; for audits. O(waiting + live)."""
        takers = {
            name: _taker(ours, req)
            for name, (ours, req) in waiting.items()
            if not self._host.is_pinned(req)
        }
        yield from self._turns.differences(takers, perhaps={}, live=live)


def _taker(ours: Request, req: Any) -> Taker:
    return Taker(ours.client, req.lora_id)

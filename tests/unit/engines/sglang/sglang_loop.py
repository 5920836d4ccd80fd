"""A stand-in for SGLang's loop, which needs no SGLang: it does with the queue what the real one does.

That is what `_get_new_batch_prefill_raw` does: walk it, skip some, add one after the other until the first
request that does not fit, and make the list anew without those it added.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.core.service import Service, Weights
from fairhit.engines.lora_slots import LoraSlotRotation
from fairhit.engines.sglang.lora_slots import SglangLoraSlots
from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue
from fairhit.policies.dlpm import DLPM


@dataclass(eq=False)
class Req:
    """The attributes of SGLang's `Req` that the line reads."""

    client: str
    tokens: list[int]
    max_tokens: int = 4
    prefix_len: int = 0
    extend_end: int | None = None  # up to where its prompt is computed or being computed
    output_ids: list[int] = field(default_factory=list)
    is_over: bool = False
    lora_id: str | None = None
    to_finish: object = None  # why SGLang refuses it, known before it runs
    extra_key = cache_salt = None

    @property
    def rid(self) -> str:
        return f"{self.client}{self.tokens}"

    @property
    def origin_input_ids(self) -> array:
        return array("q", self.tokens)

    @property
    def full_untruncated_fill_ids(self) -> list[int]:
        return self.tokens + self.output_ids

    @property
    def sampling_params(self) -> SimpleNamespace:
        return SimpleNamespace(max_new_tokens=self.max_tokens)

    def finished(self) -> bool:
        return self.is_over


class Cache:
    """The tree of the engine, with two words more that the line asks: no subclass, as it may be compiled."""

    page_len = 1

    def __init__(self) -> None:
        self._tree = RadixTree()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def units(self, tokens: array, extra_key: None, salt: None) -> tuple[int, ...]:
        return tuple(tokens)

    def put(self, tokens: Iterable[int]) -> None:
        prompt = Runs.of(tuple(tokens))
        self.release(self.insert(self.acquire(prompt, 0), prompt, 0))


class Engine:
    """SGLang's side: the list, what runs, room for `room` prompt tokens in a batch, and LoRA slots."""

    def __init__(
        self,
        *,
        quantum: int = 10,
        room: int = 100,
        slots: int = 0,
        tenure_len: int = 0,
        max_clients: int = 100,
        most_waiting: int | None = None,
        weights: dict[str, int] | None = None,
    ) -> None:
        self.cache, self.room, self.max_loras = Cache(), room, slots
        self.most_waiting = most_waiting  # --max-queued-requests
        self.refused: list[Req] = []
        self.pinned: set[str] = set()  # adapters that have a slot for good
        policy = DLPM(cache=self.cache, quantum=quantum, max_clients=max_clients)
        self.fair = FairQueue(policy)
        self.written: defaultdict[str, Service] = defaultdict(Service)  # what metrics would say
        rotation = LoraSlotRotation(tenure_len=tenure_len)
        adapters = SglangLoraSlots(self, rotation) if slots else None
        self.adapter = SglangQueueAdapter(
            self.fair,
            self.cache,
            self,
            slots=adapters,
            weights=Weights(weights),  # type: ignore[arg-type]
        )
        self.queue: list[Any] = SglangWaitingQueue([], self.adapter)
        self.left = 0
        self.batch: list[Req] = []  # what runs
        self.asked = 0  # requests that the walk was given

    def client_of(self, req: Req) -> str:
        return req.client

    def has_capacity(self, adder: object) -> bool:
        return self.left > 0

    def service_of(self, client: str) -> Service:
        return self.written[client]

    def running_requests(self, batch: list[Req]) -> list[Req]:
        return batch

    def slots(self) -> int:
        return self.max_loras - len(self.pinned)

    def is_pinned(self, req: Req) -> bool:
        return req.lora_id in self.pinned

    def holds_lora_slot(self, adder: object, req: Req) -> bool:
        return any(each.lora_id == req.lora_id for each in self.batch)

    def has_slot(self, req: Req) -> bool:
        """SGLang's `validate_lora_batch`: so many adapters at once, no adapter being one."""
        wanted = {req.lora_id, *(each.lora_id for each in self.batch)} - self.pinned
        return not self.max_loras or len(wanted) <= self.slots()

    def end(self, *reqs: Req) -> None:
        """End running requests with their last output."""
        for req in reqs:
            req.is_over = True
            self.batch.remove(req)
        self.adapter.on_output(reqs)
        self.audit()

    def abort(self, req: Req) -> None:
        """End a running request outside a batch."""
        self.batch.remove(req)
        self.adapter.remove(req)

    def send(self, client: str, *tokens: int, **more: Any) -> Req:
        req = Req(client, list(tokens), **more)
        self.enqueue(req)
        return req

    def enqueue(self, req: Req) -> None:
        """
        Add an arriving or retracted request: `_add_request_to_queue`, with the plug-in's rule for a full
        queue.
        """
        if len(self.queue) == self.most_waiting:
            self.refused.append(dropped := self.adapter.request_to_drop(req))
            self.adapter.remove(dropped)
            if dropped is req:
                return
            self.queue.remove(dropped)
        self.queue.append(req)

    def run_pass(
        self, *, room: int | None = None, skip: Callable[[Req], bool] = lambda _: False
    ) -> list[Req]:
        """Run a scheduling pass of SGLang; return the requests that it added, in order."""
        self.left = self.room if room is None else room
        self.adapter.begin_pass(self.queue, self.batch)
        self.adapter.expect_iteration(self)
        added: list[Req] = []
        for req in self.queue:
            self.asked += 1
            if skip(req) or not self.has_slot(req):
                continue
            req.prefix_len = min(
                self.cache.match_len(tuple(req.full_untruncated_fill_ids)), len(req.tokens) - 1
            )
            extend_len = len(req.full_untruncated_fill_ids) - req.prefix_len
            if extend_len > self.left:
                break
            self.left -= extend_len
            self.adapter.on_admit(req)
            added.append(req)
            self.batch.append(req)
        if added:
            self.queue = SglangWaitingQueue(
                [req for req in self.queue if req not in added], self.adapter
            )
        self.audit()
        return added

    def audit(self) -> None:
        """As the setting does with the real lists."""
        running = [req for req in self.batch if req not in self.queue and not req.is_over]
        found = [*self.adapter.differences(self.queue, running)]
        assert not found, found

    def through(self, reqs: Iterable[Req]) -> None:
        """The batch's prompts are computed and each emitted its first token."""
        for req in reqs:
            self.cache.put(req.tokens)
            req.output_ids.append(0)
        self.adapter.on_output(reqs)

    def credit(self, client: str) -> int:
        """The client's deficit in tokens."""
        return self.fair.credit(client) // 10**8


def clients(reqs: Iterable[Req]) -> str:
    """Return the clients of requests, in order."""
    return "".join(req.client for req in reqs)

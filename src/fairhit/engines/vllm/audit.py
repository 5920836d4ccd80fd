"""Comparison of the plug-in's containers with the lists of the vLLM scheduler that they mirror.

Integration points (vLLM 0.15 to 0.33): `Scheduler.requests`, `running`, `kv_holding_waiting` (from 0.32);
`Request.status`. vLLM moves requests between its lists without calling the queue. A record that
outlives such a move is an error: an adapter then waits for a request that does not wait.

The setting `audit` turns it on, and all tests of the project run with it. O(requests) a call.
"""

from collections.abc import Iterator
from typing import Any

from vllm.v1.request import RequestStatus

from fairhit.core.fair_queue import FairQueue, RequestState
from fairhit.core.request import RequestId
from fairhit.engines.lora_slots import LoraSlotRotation, Taker
from fairhit.engines.vllm.identity import adapter_of
from fairhit.engines.vllm.waiting_queue import PROMOTIONS, READY, VllmWaitingQueue
from fairhit.errors import AuditFailed

# By container, the state that the core may have for its requests.
STATES = {
    "running": (RequestState.RUNNING,),
    "kv_holding_waiting": (RequestState.RUNNING,),
    "ready": (RequestState.WAITING, RequestState.PREEMPTED),
    "blocked": (RequestState.HELD,),
    "aside": (RequestState.HELD,),
    "loading": (RequestState.RUNNING,),
    "loaded": (RequestState.RUNNING,),
}
# Containers whose requests may have any status of a waiting request; of the others those are ready.
MAY_BE_BLOCKED = {"kv_holding_waiting", "blocked", "loading"}


def audit(
    scheduler: Any, *, core: FairQueue, queue: VllmWaitingQueue, turns: LoraSlotRotation
) -> None:
    """Raise AuditFailed with every difference. To be called between two steps. O(requests)."""
    places: dict[RequestId, tuple[str, Any]] = {}
    wrong = [*_gather(scheduler, queue, places), *_contradictions(scheduler, core, queue, places)]
    if not wrong:  # below, each request has its one place
        waiting: dict[RequestId, Taker] = {}
        perhaps: dict[RequestId, Taker] = {}
        for name, (place, request) in places.items():
            if place != "running" and request.status in READY and (adapter := adapter_of(request)):
                into = perhaps if place in MAY_BE_BLOCKED else waiting
                into[name] = Taker(queue.live[name].client, adapter)
        wrong += turns.differences(waiting, perhaps=perhaps, live=queue.live)
    if wrong:
        raise AuditFailed(f"fairhit: audit: {'; '.join(wrong)}")


def _gather(
    scheduler: Any, queue: VllmWaitingQueue, places: dict[RequestId, tuple[str, Any]]
) -> Iterator[str]:
    """Write the container of each request into `places`; yields the requests that are in several."""
    containers = {
        "running": scheduler.running,
        "kv_holding_waiting": getattr(scheduler, "kv_holding_waiting", ()),
        **queue.containers(),
    }
    for place, requests in containers.items():
        for request in requests:
            name = request.request_id
            if name in places:
                yield f"{name} is in {places[name][0]} and in {place}"
            places[name] = place, request


def _contradictions(
    scheduler: Any,
    core: FairQueue,
    queue: VllmWaitingQueue,
    places: dict[RequestId, tuple[str, Any]],
) -> Iterator[str]:
    known = {name for name, request in scheduler.requests.items() if not request.is_finished()}
    recorded = {
        "the containers": places.keys(),
        "the records of the queue": queue.live.keys(),
        "the core": core.known(),
    }
    for what, names in recorded.items():
        for name in sorted(known - names):
            yield f"{name} is live and not in {what}"
        for name in sorted(names - known):
            yield f"{name} is gone and in {what}"
    may_be_blocked = set(MAY_BE_BLOCKED)
    if not any(hasattr(scheduler, method) for method in PROMOTIONS):
        may_be_blocked.add("ready")
    for name, (place, request) in places.items():
        status = request.status
        is_ready = status in READY or place in may_be_blocked
        if (status is not RequestStatus.RUNNING) if place == "running" else not is_ready:
            yield f"{name} has status {status.name} in {place}"
        if (ours := queue.live.get(name)) and ours.id in core:
            if core.state(ours) not in STATES[place]:
                yield f"{name} is in {place}, and {core.state(ours).value} in the core"

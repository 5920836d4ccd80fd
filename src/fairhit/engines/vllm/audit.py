"""Comparison of the plug-in's records with the lists of the vLLM scheduler.

Integration points (vLLM 0.15 to 0.33): `requests`, `running`, `kv_holding_waiting` (from 0.32) of vLLM's
scheduler; `Request.status`. vLLM moves requests between its lists without calling the queue. A record that
outlives such a move is an error: an adapter then waits for a request that does not wait.

The setting `audit` turns the comparison on, and all tests of the project run with it. O(requests) a call.
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

# The states that the fair queue may have for requests, by container.
STATES = {
    "running": (RequestState.RUNNING,),
    "kv_holding_waiting": (RequestState.RUNNING,),
    "ready": (RequestState.WAITING, RequestState.PREEMPTED),
    "blocked": (RequestState.BLOCKED,),
    "skipped": (RequestState.BLOCKED,),
    "loading": (RequestState.RUNNING,),
    "loaded": (RequestState.RUNNING,),
}
# Containers whose requests may be blocked; requests of the others are ready.
MAY_BE_BLOCKED = {"kv_holding_waiting", "blocked", "loading"}


def audit(
    scheduler: Any, *, core: FairQueue, queue: VllmWaitingQueue, rotation: LoraSlotRotation
) -> None:
    """Raise AuditFailed with every difference. Call between two steps. O(requests)."""
    found: dict[RequestId, tuple[str, Any]] = {}
    wrong = [*_gather(scheduler, queue, found), *_contradictions(scheduler, core, queue, found)]
    if not wrong:  # each request is in one container
        waiting: dict[RequestId, Taker] = {}
        perhaps: dict[RequestId, Taker] = {}
        for name, (container, request) in found.items():
            if (
                container != "running"
                and request.status in READY
                and (adapter := adapter_of(request))
            ):
                into = perhaps if container in MAY_BE_BLOCKED else waiting
                into[name] = Taker(queue.live[name].client, adapter)
        wrong += rotation.differences(waiting, perhaps=perhaps, live=queue.live)
    if wrong:
        raise AuditFailed(f"fairhit: audit: {'; '.join(wrong)}")


def _gather(
    scheduler: Any, queue: VllmWaitingQueue, found: dict[RequestId, tuple[str, Any]]
) -> Iterator[str]:
    """Write the container of each request into `found`; yield the requests that are in several."""
    containers = {
        "running": scheduler.running,
        "kv_holding_waiting": getattr(scheduler, "kv_holding_waiting", ()),
        **queue.containers(),
    }
    for container, requests in containers.items():
        for request in requests:
            name = request.request_id
            if name in found:
                yield f"{name} is in {found[name][0]} and in {container}"
            found[name] = container, request


def _contradictions(
    scheduler: Any,
    core: FairQueue,
    queue: VllmWaitingQueue,
    found: dict[RequestId, tuple[str, Any]],
) -> Iterator[str]:
    known = {name for name, request in scheduler.requests.items() if not request.is_finished()}
    recorded = {
        "the containers": found.keys(),
        "the records of the queue": queue.live.keys(),
        "the core": core.known(),
    }
    for what, names in recorded.items():
        for name in sorted(known - names):
            yield f"{name} is live and not in {what}"
        for name in sorted(names - known):
            yield f"{name} has ended and is in {what}"
    may_be_blocked = set(MAY_BE_BLOCKED)
    if not any(hasattr(scheduler, method) for method in PROMOTIONS):
        may_be_blocked.add("ready")
    for name, (container, request) in found.items():
        status = request.status
        is_ready = status in READY or container in may_be_blocked
        if (status is not RequestStatus.RUNNING) if container == "running" else not is_ready:
            yield f"{name} has status {status.name} in {container}"
        if (ours := queue.live.get(name)) and ours.id in core:
            if core.state(ours) not in STATES[container]:
                yield f"{name} is in {container}, and {core.state(ours).value} in the core"

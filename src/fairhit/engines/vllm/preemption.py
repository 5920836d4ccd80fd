"""Preemption order when memory runs out: the newest request of the client with the least credit first.

Integration points (vLLM 0.15 to 0.33): under `fcfs` the stock `schedule()` preempts `running[-1]`,
so the plug-in reorders `running`; `block_pool.get_num_free_blocks()`; `Request.num_tokens`,
`num_computed_tokens`, `num_prompt_tokens`, `num_preemptions`. Otherwise only token budgets depend on that
order.
"""

from typing import Any

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.engines.vllm.waiting_queue import VllmWaitingQueue

# Victims chosen per step; more are hardly ever preempted, and each choice is O(running).
MAX_VICTIMS = 4


def order_victims(scheduler: Any, core: FairQueue, queue: VllmWaitingQueue) -> None:
    """Move the requests to preempt to the end of `running`, if this step may run out of blocks. O(running).

    If all requests were preempted a short time ago, or the need was underestimated, vLLM's own choice
    remains: the newest request.
    """
    running = scheduler.running
    missing = -scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    missing += _wanted_blocks(scheduler, spare=-missing)
    if missing <= 0 or len(running) < 2:
        return
    ours: dict[Request, Any] = {
        queue.live[name]: request
        for request in running
        if (name := request.request_id) in queue.live
    }
    chosen: list[Any] = []
    while missing > 0 and len(chosen) < MAX_VICTIMS and len(ours) > 1:
        if (victim := core.victim(list(ours))) is None:
            break
        chosen.append(ours.pop(victim))
        missing -= chosen[-1].num_computed_tokens // scheduler.block_size
    for request in reversed(chosen):  # the first choice comes last
        running.remove(request)
        running.append(request)


def _wanted_blocks(scheduler: Any, *, spare: int) -> int:
    """Return an upper bound of the blocks that the running requests take in this step.

    A decoding request takes a block when its last one is full, counting draft tokens; requests in prefill
    take the blocks of their prompts, within the step's budget. A rough bound that reads no request is
    returned if it is at most `spare`.
    """
    size, budget = scheduler.block_size, scheduler.max_num_scheduled_tokens
    ahead = 1 + scheduler.num_lookahead_tokens + scheduler.num_spec_tokens
    each = -(-ahead // size)
    rough = -(-budget // size) + len(scheduler.running) * each
    if rough <= spare:
        return int(rough)
    # Only attributes are read of each request: this runs in every step while memory is scarce.
    full = [-request.num_computed_tokens % size < ahead for request in scheduler.running]
    missing = [
        request.num_tokens - request.num_computed_tokens
        for request in scheduler.running
        if request.num_computed_tokens < request.num_prompt_tokens or request.num_preemptions
    ]
    prompts = [length for length in missing if length > ahead]
    return int(-(-min(sum(prompts), budget) // size) + len(prompts) + sum(full) * each)

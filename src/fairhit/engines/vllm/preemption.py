"""Who is preempted when memory runs out: the newest request of the client that is owed least.

Integration points (vLLM 0.15 to 0.33): under `fcfs` the stock `schedule()` preempts `running[-1]`,
so the order of `running` is the choice; `block_pool.get_num_free_blocks()`; `Request.num_tokens`,
`num_computed_tokens`, `num_prompt_tokens`, `num_preemptions`. Nothing but token budgets depends on
that order otherwise.
"""

from typing import Any

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.engines.vllm.waiting_queue import VllmWaitingQueue

# More are hardly ever preempted in one step; the choice costs O(running) for each.
MAX_VICTIMS = 4


def order_victims(scheduler: Any, core: FairQueue, queue: VllmWaitingQueue) -> None:
    """Put whom to preempt at the end of `running`, if this step may run out of blocks. O(running).

    Where nobody may be preempted again so soon, or the need was underestimated, the stock choice
    stands: the newest.
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
    for request in reversed(chosen):  # the first choice is last in line
        running.remove(request)
        running.append(request)


def _wanted_blocks(scheduler: Any, *, spare: int) -> int:
    """How many blocks the running requests take in this step, at most.

    A decoding request takes one when its last block is full, but for what it may draft; what still
    prefills takes its prompt's, within the step's budget. Below `spare` the rough bound will do, which
    asks nobody.
    """
    size, budget = scheduler.block_size, scheduler.max_num_scheduled_tokens
    ahead = 1 + scheduler.num_lookahead_tokens + scheduler.num_spec_tokens
    each = -(-ahead // size)
    rough = -(-budget // size) + len(scheduler.running) * each
    if rough <= spare:
        return int(rough)
    # Only attributes in what is asked of everyone: this runs in every step while memory is scarce.
    full = [-request.num_computed_tokens % size < ahead for request in scheduler.running]
    missing = [
        request.num_tokens - request.num_computed_tokens
        for request in scheduler.running
        if request.num_computed_tokens < request.num_prompt_tokens or request.num_preemptions
    ]
    prompts = [length for length in missing if length > ahead]
    return int(-(-min(sum(prompts), budget) // size) + len(prompts) + sum(full) * each)

"""Who is preempted when memory runs out: the newest request of the client that is owed least.

Integration points (vLLM 0.15 to 0.32): under `fcfs` the stock `schedule()` preempts `running[-1]`,
so the order of `running` is the choice; `block_pool.get_num_free_blocks()`; `Request.num_tokens`,
`num_computed_tokens`. Nothing but token budgets depends on that order otherwise.
"""

from collections.abc import Mapping
from typing import Any

from fairlead.core.request import Request, RequestId
from fairlead.core.scheduler import Scheduler

# More are hardly ever preempted in one step; the choice costs O(running) for each.
MAX_VICTIMS = 4


def order_victims(scheduler: Any, core: Scheduler, live: Mapping[RequestId, Request]) -> None:
    """Put whom to preempt at the end of `running`, if blocks may run out. O(running), when tight."""
    running = scheduler.running
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    budget = scheduler.max_num_scheduled_tokens // scheduler.block_size
    # A step takes at most its token budget in full blocks and one more block for each request.
    if len(running) < 2 or free >= len(running) + budget:
        return
    missing = _wanted_blocks(scheduler) - free
    chosen: list[Any] = []
    candidates = {
        live[request.request_id]: request for request in running if request.request_id in live
    }
    while missing > 0 and len(chosen) < MAX_VICTIMS and len(candidates) > 1:
        victim = core.victim(list(candidates))
        if victim is None:
            break
        chosen.append(candidates.pop(victim))
        missing -= chosen[-1].num_computed_tokens // scheduler.block_size
    for request in reversed(chosen):  # the first choice is last in line
        running.remove(request)
        running.append(request)


def _wanted_blocks(scheduler: Any) -> int:
    """An upper bound of the blocks this step takes: what each running request lacks, within the budget."""
    size, lookahead = scheduler.block_size, scheduler.num_lookahead_tokens
    budget = scheduler.max_num_scheduled_tokens
    wanted = 0
    for request in scheduler.running:
        computed = request.num_computed_tokens
        new = request.num_tokens_with_spec + request.num_output_placeholders - computed
        new = min(new, budget) + lookahead
        wanted += -(-(computed + new) // size) + -computed // size
        budget = max(0, budget - new)
    return wanted

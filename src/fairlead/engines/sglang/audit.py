"""Comparison of the plug-in's containers with the lists of the SGLang scheduler that they mirror.

Integration points (SGLang 0.5.23): `Scheduler.waiting_queue`, `chunked_req`, `collect_inflight_reqs`;
`Req.finished`, `is_retracted`. SGLang ends requests in many ways: in a batch, in the queue, amid their
chunks, retracted. A record that outlives its request is an error: it keeps its client in debt, and an
adapter waits for a request that does not wait.

The setting `audit` turns it on, and all tests of the project run with it. O(requests) a call.
"""

from collections.abc import Collection, Iterator
from typing import Any

from fairlead.engines.sglang.line import Line


def audit(scheduler: Any, line: Line) -> None:
    """Raise AssertionError with every difference. To be called between two steps. O(requests)."""
    queue = scheduler.waiting_queue[:]  # a slice: to iterate over it may mean to admit
    waiting = dict.fromkeys(queue)
    running = {req: None for req in _in_flight(scheduler) if req not in waiting}
    if wrong := [*_repeated(queue), *line.differences(waiting, running)]:
        raise AssertionError(f"fairlead: audit: {'; '.join(wrong)}")


def _in_flight(scheduler: Any) -> Iterator[Any]:
    """Requests that run. A batch also shows those that ended since it was made, until it is filtered."""
    reqs = [*scheduler.collect_inflight_reqs(), scheduler.chunked_req]
    return (req for req in reqs if req and not req.finished() and not req.is_retracted)


def _repeated(reqs: Collection[Any]) -> Iterator[str]:
    if len({*reqs}) != len(reqs):
        yield f"{len(reqs)} wait in SGLang's list, which has {len({*reqs})} requests"

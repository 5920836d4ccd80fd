"""The mirrored block map against vLLM's own lookup: every waiting request, at every step."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import (  # noqa: E402
    BLOCK,
    RequestStatus,
    Trace,
    make_request,
    make_scheduler,
)

from fairhit.engines.vllm import FairScheduler  # noqa: E402

# A prompt is a path in a small tree of blocks: one digit is one block of tokens, then a remainder.
PROMPTS = st.tuples(st.text("ab", max_size=6), st.integers(1, BLOCK))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PROMPTS),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("reset"), st.booleans()),
    ),
    max_size=40,
)


def tokens(path: str, rest: int) -> list[int]:
    return [ord(block) for block in path for _ in range(BLOCK)] + [1] * rest


def assert_depths_are_hits(scheduler) -> None:
    """Invariant: the index's depth of a waiting request is the hit vLLM would find now."""
    coordinator = scheduler.kv_cache_manager.coordinator
    for request in scheduler.waiting:
        ours = scheduler._queue.live[request.request_id]
        if request.status == RequestStatus.PREEMPTED:
            continue  # first in line anyway, so it hangs on nothing
        hit = coordinator.find_longest_cache_hit(request.block_hashes, request.num_tokens - 1)[1]
        assert scheduler._fair.policy._queue._index.match_len(ours) == hit, request.request_id


@settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(events=EVENTS, blocks=st.integers(10, 40))
def test_index_depth_is_the_hit_vllm_would_find(events, blocks):
    """Evictions, duplicates of one hash, aborts, preemptions and resets in any order."""
    trace = Trace(make_scheduler(FairScheduler, blocks=blocks, max_num_seqs=2, budget=64))
    count = 0
    for event, value in events:
        if event == "add":
            name = f"r{count}"
            count += 1
            trace.add(make_request(name, tokens(*value), client="xy"[count % 2], max_tokens=20))
        elif event == "step":
            for _ in range(value):
                trace.step()
                assert_depths_are_hits(trace.scheduler)
        elif event == "abort":
            trace.scheduler.finish_requests(f"r{value}", RequestStatus.FINISHED_ABORTED)
        else:
            trace.scheduler.reset_prefix_cache(reset_running_requests=value)
        assert_depths_are_hits(trace.scheduler)
    trace.run()
    assert not trace.scheduler._queue.live

"""LoRA slots and requests that load remote KV, on the bare Scheduler of the vLLM that is installed.

Older versions have no queue of their own for these; what they do is played by `keeps_loading`.
"""

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import RequestStatus  # noqa: E402
from tests.unit.engines.vllm.test_adapters import ask, flood, with_slots  # noqa: E402


@pytest.mark.parametrize("keeps_loading", [True, False])
def test_who_has_loaded_remote_kv_waits_for_a_slot_as_others_do(keeps_loading):
    """A charged request that holds blocks is offered first by vLLM: in 0.32 without a call of the queue."""
    trace = with_slots(adapter_turn=100)
    rotation, queue = trace.scheduler._rotation, trace.scheduler._queue
    name = ask(trace, "b")
    queue._keeps_loading = keeps_loading
    queue.begin_step()
    loaded = queue.pop_request()
    loaded.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    if keeps_loading:
        queue.prepend_request(loaded)
    else:
        trace.scheduler.kv_holding_waiting.add_request(loaded)
    queue.end_step({})
    flood(trace, "a", steps=2)
    assert "b" not in rotation._waiting

    loaded.status = RequestStatus.WAITING
    flood(trace, "a", steps=2)
    assert rotation.is_contended and "b" in rotation._waiting

    while name not in trace.finished and rotation.rotations < 5:
        flood(trace, "a", steps=1)
    assert name in trace.finished

"""Changes of vLLM 0.33 against the installed version: test_vllm_versions runs this on 0.33 alone."""

from functools import partial

import pytest
from tests.unit.engines.vllm import bare_vllm
from tests.unit.engines.vllm.bare_vllm import BLOCK, Trace, make_request
from tests.unit.engines.vllm.fair_trace import assert_exact, fair, prompt, service
from tests.unit.engines.vllm.test_adapters import ask, with_slots
from tests.unit.engines.vllm.test_block_view import assert_depths_are_hits
from vllm.config import VllmConfig

pytestmark = pytest.mark.vllm


@pytest.fixture
def lookahead(monkeypatch):
    """As EAGLE and MTP have it: a block's hash also covers the token that follows the block."""
    monkeypatch.setattr(VllmConfig, "num_hash_lookahead_tokens", 1)
    hasher = bare_vllm.get_request_block_hasher
    monkeypatch.setattr(
        bare_vllm, "get_request_block_hasher", partial(hasher, num_hash_lookahead_tokens=1)
    )


def test_lookahead_hashes_are_matched_as_vllm_matches_them(lookahead):
    """Prompts that part just behind a block share one block less than without."""
    trace = fair(blocks=40, max_num_seqs=2, budget=64)
    shared = [1] * (2 * BLOCK)
    for number in range(12):
        own = [2 + number % 3] * (BLOCK * (number % 2) + 5)
        trace.add(make_request(f"r{number}", shared + own, client="xy"[number % 2], max_tokens=20))

    while trace.scheduler.has_unfinished_requests():
        trace.step()
        assert_depths_are_hits(trace.scheduler)

    hits = dict(trace.admitted)
    assert trace.scheduler.num_hash_lookahead_tokens == 1
    assert min(hits.values()) == 0
    assert BLOCK in hits.values()  # parted behind the second block
    assert_exact(
        trace, {f"r{n}": ("xy"[n % 2], len(shared) + BLOCK * (n % 2) + 5) for n in range(12)}
    )


def test_steps_without_prefill_admit_no_request_and_charge_nothing():
    """--prefill-schedule-interval holds prefill back without data parallelism, too."""
    trace = fair(blocks=200, max_num_seqs=8, budget=100)
    trace.scheduler.local_prefill_interval = 4
    inputs = {}
    for number in range(24):
        client, length = "ab"[number % 2], 70 + 7 * (number % 5)
        inputs[f"r{number}"] = client, length
        words = prompt(number % 4, number, length=length)
        trace.add(make_request(f"r{number}", words, client=client, max_tokens=12))

    charged = []
    while trace.scheduler.has_unfinished_requests():
        admitted = len(trace.admitted)
        paid = sum(service(trace, client).extend_len for client in "ab")
        trace.step()
        if len(trace.admitted) == admitted:
            charged.append(sum(service(trace, client).extend_len for client in "ab") - paid)

    assert len(trace.finished) == 24
    assert len(charged) > len(trace.scheduled) // 2
    assert set(charged) == {0}
    assert_exact(trace, inputs)


def test_a_request_that_gets_no_tokens_is_skipped_and_those_behind_it_run():
    """The loop went no further until 0.32; now it goes on, and who is skipped pays nothing."""
    trace = fair(blocks=100, max_num_seqs=4, budget=512)
    reserve = trace.scheduler._reserve_prefill_lookahead
    stuck = {"a0"}
    trace.scheduler._reserve_prefill_lookahead = lambda request, computed, tokens: (
        0 if request.request_id in stuck else reserve(request, computed, tokens)
    )
    for name in ("a0", "b0", "b1"):
        trace.add(
            make_request(name, [ord(name[0]) + int(name[1])] * 40, client=name[0], max_tokens=6)
        )

    trace.step()

    assert trace.running == ["b0", "b1"]
    assert service(trace, "a").extend_len == 0
    stuck.clear()
    trace.run()
    assert set(trace.finished) == {"a0", "b0", "b1"}
    assert service(trace, "a").extend_len == 40
    assert not trace.scheduler.has_request("a0")


def test_an_adapter_that_runs_without_being_scheduled_keeps_its_slot():
    """Async scheduling: a request that awaits its last output is not scheduled; its adapter stays."""
    trace = with_slots(1, run_ahead=True, adapter_turn=50)
    names = [ask(trace, "ab"[number % 2], tokens=1 + number % 3) for number in range(30)]

    while trace.scheduler.has_unfinished_requests():
        trace.step()
        assert len(loaded(trace)) <= 1
    trace.run()

    assert set(trace.finished) == set(names)


def loaded(trace: Trace) -> set[int]:
    return {request.lora_request.lora_int_id for request in trace.scheduler.running}

"""Requests that wait for something else than memory, on a bare vLLM Scheduler."""

from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import RequestStatus, Trace, make_request  # noqa: E402
from tests.unit.engines.vllm.fair_trace import deficit, fair, service  # noqa: E402

from fairhit.core.service import Service  # noqa: E402


class Grammar:
    """A structured-output request whose grammar compiles in the background."""

    grammar: object | None = None


def blocked(name: str, words: list[int], client: str):
    request = make_request(name, words, client=client)
    names = ("WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", "WAITING_FOR_FSM")  # the latter until 0.15
    request.status = next(getattr(RequestStatus, n) for n in names if hasattr(RequestStatus, n))
    request.structured_output_request = Grammar()
    return request


def finish_grammar(trace: Trace, request) -> None:
    """As far as the scheduler looks; the sampling itself needs no grammar here."""
    request.structured_output_request.grammar = object()
    trace.scheduler.structured_output_manager = SimpleNamespace(
        accept_tokens=lambda *_: True, should_advance=lambda *_: False
    )


def test_a_request_that_waits_for_its_grammar_neither_has_nor_blocks_credit():
    """A blocked request's client has credit and nothing to run: others do not wait, and it is not charged."""
    trace = fair(max_num_seqs=2, quantum=10)
    late = blocked("late", [1] * 50, client="a")
    trace.add(late, *(make_request(f"b{i}", [2 + i] * 50, client="b") for i in range(4)))

    for _ in range(3):
        trace.step()

    assert trace.running == ["b0", "b1"]
    assert len(trace.scheduler.waiting) == 3
    assert service(trace, "a") == Service()
    finish_grammar(trace, late)
    trace.run()
    assert service(trace, "a") == Service(extend_len=50, cached_len=0, output_len=8)
    order = [name for name, _ in trace.admitted]
    assert order.index("late") < order.index("b3")


def test_a_grammar_that_does_not_compile_ends_its_request_alone():
    """From 0.26 on; earlier the front end refuses such a grammar before it gets here."""
    trace = fair(max_num_seqs=2)
    broken = blocked("broken", [1] * 50, client="a")
    trace.add(broken, make_request("fine", [2] * 50, client="b"))
    broken.structured_output_request.grammar = ValueError("no such rule")
    if not hasattr(trace.scheduler, "grammar_compile_error_reqs"):
        return

    trace.run()

    assert set(trace.finished) == {"broken", "fine"}
    assert trace.emitted["broken"] == 0
    assert service(trace, "a") == Service()
    assert not trace.scheduler._queue.live


def test_many_blocked_requests_are_all_asked_in_turn():
    trace = fair(max_num_seqs=4)
    requests = [blocked(f"r{i}", [i] * 20, client="a") for i in range(40)]
    trace.add(*requests)
    trace.step()
    assert trace.running == []

    for request in requests:
        finish_grammar(trace, request)
    trace.run()

    assert len(trace.finished) == 40


def test_a_request_skipped_for_a_lora_slot_is_not_charged_and_not_lost():
    """The batch holds adapter 1; those of adapter 2 are popped, skipped and put back."""
    trace = fair(max_num_seqs=3)
    trace.scheduler.lora_config = SimpleNamespace(max_loras=1)
    for i in range(80):
        adapter = 1 if i == 0 else 2
        request = make_request(f"r{i}", [i] * 20, max_tokens=3 if i == 0 else 1)
        request.lora_request = SimpleNamespace(lora_int_id=adapter, lora_name=f"adapter{adapter}")
        trace.add(request)

    trace.step()
    assert trace.running == ["r0"]
    assert service(trace, "adapter2") == Service()
    assert len(trace.scheduler.waiting) == 79
    trace.add(make_request("plain", [99] * 20, client="c", max_tokens=1))
    for _ in range(2):
        trace.step()

    assert "plain" in trace.finished
    trace.run()
    assert len(trace.finished) == 81
    assert service(trace, "adapter2") == Service(extend_len=79 * 20, cached_len=0, output_len=79)


@pytest.mark.parametrize(("scheduler", "start"), [("dlpm", 4096), ("vtc", 0)])
def test_every_turn_of_streaming_input_is_paid_for(scheduler, start):
    """A live session comes back with a longer prompt; what it said before is in memory already."""
    trace = fair(scheduler=scheduler, max_num_seqs=2)
    trace.add(make_request("s", [1] * 5, client="a", max_tokens=1, resumable=True))
    trace.step()
    for turn in range(3):
        trace.finished.clear()
        trace.add(make_request("s", [2 + turn] * 40, client="a", max_tokens=1, resumable=True))
        trace.step()

    assert service(trace, "a") == Service(extend_len=5 + 3 * 40, cached_len=0, output_len=4)
    assert deficit(trace, "a") == start - 125 - 2 * 4


def with_adapter(name: str, adapter: int, **options):
    request = make_request(name, [hash(name) % 400] * 20, caching=False, **options)
    if adapter:
        request.lora_request = SimpleNamespace(lora_int_id=adapter, lora_name=f"adapter{adapter}")
    return request


def test_thousands_that_want_a_lora_slot_are_no_wall():
    """Requests without a slot are skipped without a try by vLLM, and few of them are retried."""
    trace = fair(max_num_seqs=4, quantum=100, caching=False)
    trace.scheduler.lora_config = SimpleNamespace(max_loras=1)
    trace.add(with_adapter("run", 1, max_tokens=3000))
    trace.step()
    trace.add(*(with_adapter(f"r{i}", 2, max_tokens=1) for i in range(1000)))
    trace.add(with_adapter("plain", 0, client="c", max_tokens=1))

    steps = 0
    while "plain" not in trace.finished:
        trace.step()
        steps += 1

    assert steps <= 5
    trace.add(with_adapter("late", 0, client="d", max_tokens=1))
    trace.step()
    assert "late" in trace.finished


def test_all_that_wanted_a_slot_run_once_it_is_free():
    """Of every client: one that put thousands aside is not served before one that put one."""
    trace = fair(max_num_seqs=4, quantum=100, caching=False)
    trace.scheduler.lora_config = SimpleNamespace(max_loras=1)
    trace.add(with_adapter("run", 1, max_tokens=10))
    trace.step()
    trace.add(*(with_adapter(f"h{i}", 2, client="heavy", max_tokens=1) for i in range(100)))
    trace.add(with_adapter("light", 2, client="light", max_tokens=1))

    trace.run(steps=60)

    order = [name for name, _ in trace.admitted]
    assert len(order) == 102
    assert order.index("light") < 20

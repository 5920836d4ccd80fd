"""Charges on a bare vLLM Scheduler equal what vLLM reports, whatever happens in between."""

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import RequestStatus, make_request  # noqa: E402
from tests.unit.engines.vllm.fair_trace import assert_exact, deficit, fair, prompt, service  # noqa: E402

from fairhit.core.service import UNITS_PER_TOKEN, Service  # noqa: E402
from fairhit.policies import IN_ENGINES  # noqa: E402


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("blocks", [256, 24])
def test_charges_are_what_vllm_reports(run_ahead, blocks):
    """Cache hits inside a step, chunks, preemption and recomputation: the ledger stays exact."""
    trace = fair(run_ahead=run_ahead, blocks=blocks, budget=128, quantum=300)
    inputs = {}
    for i in range(30):
        client, length = "abc"[i % 3], 70 + 7 * (i % 5)
        inputs[f"r{i}"] = client, length
        words = prompt(i % 4, i, length=length)
        trace.add(make_request(f"r{i}", words, client=client, max_tokens=40))

    trace.run()

    assert len(trace.finished) == 30
    assert bool(trace.preempted) == (blocks == 24)
    assert_exact(trace, inputs)
    assert sum(service(trace, client).output_len for client in "abc") == 30 * 40
    assert not trace.scheduler._queue.live
    assert len(trace.scheduler._fair) == 0


@pytest.mark.parametrize("scheduler", IN_ENGINES)
def test_every_scheduler_that_engines_offer_serves_everybody(scheduler):
    """In little memory, where most of them preempt, and with aborts, where predictions are settled."""
    trace = fair(scheduler=scheduler, blocks=24, budget=128)
    for i in range(18):
        client, words = "abc"[i % 3], prompt(i % 4, i, length=70 + 7 * (i % 5))
        trace.add(make_request(f"r{i}", words, client=client, max_tokens=40))
    for _ in range(3):
        trace.step()
    trace.scheduler.finish_requests(["r0", "r17"], RequestStatus.FINISHED_ABORTED)
    trace.run()

    assert set(trace.finished) == {f"r{i}" for i in range(1, 17)}
    assert len(trace.scheduler._fair) == 0


def test_preempted_requests_come_back_first_and_pay_nothing_twice():
    trace = fair(blocks=10, max_num_seqs=2)
    trace.add(*(make_request(f"r{i}", [i] * 64, client="a", max_tokens=30) for i in range(3)))
    while not trace.preempted:
        trace.step()
    (victim,) = trace.preempted

    while victim not in trace.running:
        assert "r2" not in trace.running
        trace.step()
    trace.run()

    assert trace.scheduler._fair.recomputed_len > 0
    assert service(trace, "a") == Service(extend_len=3 * 64, cached_len=0, output_len=90)


def test_an_aborted_request_is_gone_from_wherever_it_is():
    """Waiting ones were charged nothing; running ones keep what they consumed."""
    trace = fair(max_num_seqs=1)
    trace.add(*(make_request(name, [i] * 50, client=name) for i, name in enumerate("abc")))
    trace.step()
    trace.step()

    trace.scheduler.finish_requests(["a", "b"], RequestStatus.FINISHED_ABORTED)

    assert len(trace.scheduler.waiting) == 1
    assert service(trace, "b") == Service()
    assert service(trace, "a") == Service(extend_len=50, cached_len=0, output_len=2)
    assert deficit(trace, "a") == 4096 - 50 - 4
    trace.run()
    assert set(trace.finished) == {"c"}
    assert not trace.scheduler._queue.live


def test_aborting_everything_leaves_nothing():
    trace = fair(blocks=10, max_num_seqs=2)
    trace.add(*(make_request(f"r{i}", [i] * 64, max_tokens=30) for i in range(5)))
    while not trace.preempted:
        trace.step()

    trace.scheduler.finish_requests(list(trace.scheduler.requests), RequestStatus.FINISHED_ABORTED)

    assert not trace.scheduler.has_unfinished_requests()
    assert not trace.scheduler._queue.live
    assert len(trace.scheduler._fair) == 0


def test_output_in_flight_for_an_aborted_request_is_not_charged():
    """Running ahead, an abort arrives between the plan and its output; no client gets those tokens."""
    trace = fair(run_ahead=True)
    trace.add(make_request("a", [1] * 50, client="a"))
    for _ in range(3):
        trace.step()
    before = service(trace, "a").output_len

    trace.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    trace.step()

    assert before == service(trace, "a").output_len == trace.emitted["a"]
    assert not trace.scheduler._queue.live


def test_tokens_beyond_a_stop_are_not_charged():
    """Several tokens come in one step with speculation; what is cut off at the stop was never served."""
    trace = fair()
    trace.add(make_request("a", [1] * 20, client="a", max_tokens=50, stop_token_ids=[5]))

    trace.step(lambda _: [7, 7, 7])
    trace.step(lambda _: [7, 5, 7, 7])

    assert trace.finished
    assert service(trace, "a").output_len == trace.emitted["a"] == 5


def test_samples_of_one_prompt_pay_for_it_once():
    """n = 4 arrives as four requests with one prompt; three of them find it cached in the same step."""
    trace = fair()
    trace.add(*(make_request(f"{i}_x", [3] * 70, client="a") for i in range(4)))

    trace.step()

    assert service(trace, "a").extend_len == 70 + 3 * (70 - 64)
    trace.run()
    assert service(trace, "a").output_len == 4 * 8


def test_a_reset_of_the_prefix_cache_empties_the_index_too():
    trace = fair()
    trace.add(make_request("a", prompt(1, 1)))
    trace.run()
    assert len(trace.scheduler._blocks) > 0

    assert trace.scheduler.reset_prefix_cache()

    assert len(trace.scheduler._blocks) == 0
    trace.add(make_request("b", prompt(1, 1)))
    trace.run()
    assert len(trace.scheduler._blocks) > 0
    assert trace.admitted[1] == ("b", 0)


def test_the_index_follows_the_cache_even_after_a_reset_that_failed():
    """A KV connector may raise once the map of blocks was replaced already."""
    trace = fair()

    def fail() -> bool:
        raise RuntimeError("connector")

    trace.scheduler.reset_connector_cache = fail
    with pytest.raises(RuntimeError):
        trace.scheduler.reset_prefix_cache(reset_connector=True)

    trace.add(make_request("a", prompt(1, 1)))
    trace.run()
    assert len(trace.scheduler._blocks) > 0


def test_a_reset_in_mid_run_preempts_every_request_and_charges_no_client():
    trace = fair()
    trace.add(*(make_request(f"r{i}", [i] * 40, client="a", max_tokens=10) for i in range(3)))
    for _ in range(3):
        trace.step()

    assert trace.scheduler.reset_prefix_cache(reset_running_requests=True)

    assert trace.running == []
    trace.run()
    assert service(trace, "a") == Service(extend_len=120, cached_len=0, output_len=30)


def test_without_prefix_caching_every_prompt_counts_in_full():
    trace = fair(caching=False)
    for i in range(3):
        trace.add(make_request(f"r{i}", [1] * 70, client="a", caching=False))

    trace.run()

    assert service(trace, "a") == Service(extend_len=210, cached_len=0, output_len=24)


def test_a_hybrid_model_orders_by_its_full_attention_and_charges_exactly():
    """A windowed group needs only the last blocks cached, so the full one's match is an upper bound."""
    trace = fair(window=64)
    inputs = {}
    for i in range(12):
        inputs[f"r{i}"] = "ab"[i % 2], 130
        trace.add(make_request(f"r{i}", prompt(i % 3, i, length=130), client="ab"[i % 2]))

    trace.run()

    assert "charges are exact" in trace.scheduler._group.accuracy
    assert_exact(trace, inputs)
    assert service(trace, "a").cached_len > 0


def test_deficits_are_shown_in_tokens():
    trace = fair(quantum=1000)
    trace.add(make_request("a", [1] * 50, client="a", max_tokens=1))
    trace.run()

    assert deficit(trace, "a") == 1000 - 50 - 2
    assert trace.scheduler._fair.credit("a") == 948 * UNITS_PER_TOKEN

"""FairScheduler in a real vLLM Scheduler without weights: who is admitted, and what each client pays."""

from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.bare_vllm import (  # noqa: E402
    RequestStatus,
    StockScheduler,
    Trace,
    make_request,
    make_scheduler,
)

from fairlead.core.service import UNITS_PER_TOKEN, Service  # noqa: E402
from fairlead.engines.vllm import FairScheduler  # noqa: E402
from fairlead.engines.vllm.scheduler import AsyncFairScheduler  # noqa: E402


def prompt(prefix: int, own: int, *, shared: int = 64, length: int = 100) -> list[int]:
    """`shared` tokens that every prompt with this prefix begins with, then tokens of its own."""
    return [prefix] * shared + [own + 100] * (length - shared)


def fair(*, run_ahead: bool = False, **options) -> Trace:
    made = make_scheduler(FairScheduler, run_ahead=run_ahead, **options)
    return Trace(made, run_ahead=run_ahead)


def service(trace: Trace, client: str) -> Service:
    return trace.scheduler._fair.service(client)


def deficit(trace: Trace, client: str) -> float:
    return trace.scheduler._deficit_of(client)


def assert_exact(trace: Trace, inputs: dict[str, tuple[str, int]]) -> None:
    """The ledger is what vLLM itself reported: hits of first admissions, and tokens handed out."""
    expected: dict[str, Service] = {}
    for name, hit in trace.admitted:
        client, length = inputs[name]
        received = expected.setdefault(client, Service())
        received.extend_len += length - hit
        received.cached_len += hit
    for name, emitted in trace.emitted.items():
        expected.setdefault(inputs[name][0], Service()).output_len += emitted
    for client, received in expected.items():
        assert received == service(trace, client), client


def test_the_engine_s_async_setting_picks_the_class():
    """The engine runs ahead of the outputs or not by that flag alone, whatever class it was given."""
    assert type(fair().scheduler) is FairScheduler
    assert type(fair(run_ahead=True).scheduler) is AsyncFairScheduler


def test_the_longest_cached_prefix_goes_first():
    trace = fair(scheduler="lpm", max_num_seqs=1)
    trace.add(make_request("warm", prompt(1, 0), max_tokens=1))
    trace.run()
    trace.add(*(make_request(f"cold{i}", prompt(2 + i, i), max_tokens=1) for i in range(3)))
    trace.add(make_request("hit", prompt(1, 9), max_tokens=1))

    trace.run()

    assert trace.admitted[:3] == [("warm", 0), ("hit", 64), ("cold0", 0)]


def test_a_flood_does_not_keep_a_light_client_waiting():
    """
    Under FCFS light's two requests wait for all of heavy's; under DLPM for a quantum's worth.
    """
    trace = fair(max_num_seqs=2, quantum=200)
    trace.add(*(make_request(f"h{i}", prompt(1, i), client="heavy") for i in range(40)))
    trace.add(*(make_request(f"l{i}", prompt(2, i), client="light") for i in range(2)))

    trace.run()

    order = [name for name, _ in trace.admitted]
    assert max(order.index("l0"), order.index("l1")) < 10
    assert order.index("l0") > 0


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


def test_memory_pressure_takes_from_the_client_that_is_owed_least():
    """Stock vLLM preempts who came last, here the light client; the flood shall give way instead."""
    trace = fair(blocks=15, max_num_seqs=3, quantum=1000)
    trace.add(*(make_request(f"h{i}", [i] * 64, client="heavy", max_tokens=60) for i in range(2)))
    trace.step()
    trace.add(make_request("light", [9] * 64, client="light", max_tokens=60))
    while not trace.preempted:
        trace.step()

    assert trace.preempted == ["h1"]
    assert "light" in trace.running
    trace.run()


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
    """Running ahead, an abort arrives between the plan and its output; nobody gets those tokens."""
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
    """Its client has credit and nothing to run: others must not wait for it, nor it pay."""
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


def test_a_reset_in_mid_run_preempts_everyone_and_charges_nobody():
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


def test_a_full_batch_looks_at_nobody_and_refills_nobody():
    trace = fair(max_num_seqs=1, quantum=10)
    trace.add(make_request("a", [1] * 50, client="a", max_tokens=20))
    trace.step()
    trace.add(make_request("b", [2] * 50, client="b"))
    rounds = trace.scheduler._fair.policy.refill_rounds

    for _ in range(5):
        trace.step()

    assert rounds == trace.scheduler._fair.policy.refill_rounds


def test_a_request_larger_than_the_whole_cache_can_be_aborted():
    """
    vLLM 0.32 refuses to start with less KV than one full-length request, so no server gets here.
    A bare Scheduler can be made to; the stock queue then stops for good, and so does ours, until
    the request goes.
    """
    trace = fair(blocks=9, max_num_seqs=2, quantum=100)
    trace.add(make_request("huge", [1] * 400, client="a"))
    trace.add(make_request("small", [2] * 40, client="b"))
    for _ in range(5):
        trace.step()
    assert "huge" not in trace.running

    trace.scheduler.finish_requests("huge", RequestStatus.FINISHED_ABORTED)
    trace.run()

    assert "small" in trace.finished


@pytest.mark.parametrize("scheduler", ["dlpm", "vtc"])
@pytest.mark.parametrize("limit", [1, 2])
def test_more_names_than_records_cannot_end_the_engine(scheduler, limit):
    """
    Without a gateway or middleware anybody may invent names. Strangers beyond the table share an
    account; a client forgotten while it runs costs a few uncharged tokens, not the server.
    """
    trace = fair(scheduler=scheduler, max_clients=limit, max_num_seqs=2)
    for i in range(12):
        trace.add(make_request(f"r{i}", [i] * 40, client=f"c{i}"))
        trace.step()

    trace.run()

    assert len(trace.finished) == 12
    assert not trace.scheduler._queue.live


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"scheduler": "dlmp"}, "additional_config.fairlead.scheduler: expected one of"),
        ({"quantum": "4096"}, "additional_config.fairlead.quantum: expected a whole number"),
        ({"weights": {"gold": 0}}, "additional_config.fairlead.weights.gold: expected a positive"),
        ({"quantm": 1}, "additional_config.fairlead.quantm: unknown; expected one of scheduler"),
        ({"scheduler": "fcfs", "quantum": 1}, "scheduler fcfs has no setting 'quantum'"),
    ],
)
def test_a_wrong_setting_stops_the_engine_with_one_line(settings, line):
    with pytest.raises(SystemExit) as stopped:
        fair(**settings)

    assert line in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_settings_come_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("FAIRLEAD_SCHEDULER", "vtc")
    monkeypatch.setenv("FAIRLEAD_WEIGHTS", "gold=2,silver=1.5")
    assert type(fair().scheduler._fair.policy).__name__ == "VTC"
    monkeypatch.setenv("FAIRLEAD_QUANTUM", "many")
    with pytest.raises(SystemExit, match="FAIRLEAD_QUANTUM: expected a number"):
        fair()


def test_weights_share_in_proportion():
    trace = fair(max_num_seqs=2, quantum=100, weights={"gold": 3})
    for i in range(60):
        trace.add(make_request(f"g{i}", [i] * 40, client="gold"))
        trace.add(make_request(f"t{i}", [500 - i] * 40, client="tin"))

    for _ in range(120):
        trace.step()

    ratio = service(trace, "gold").system_view() / service(trace, "tin").system_view()
    assert ratio == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize("blocks", [256, 12])
def test_fcfs_plans_exactly_what_the_stock_queue_plans(blocks):
    """Same trace, same steps: what differs under another policy is the policy and nothing else."""
    plans = []
    for scheduler, settings in ((StockScheduler, {}), (FairScheduler, {"scheduler": "fcfs"})):
        trace = Trace(make_scheduler(scheduler, blocks=blocks, budget=96, **settings))
        for i in range(25):
            words = prompt(i % 3, i, length=66 + 5 * (i % 7))
            trace.add(make_request(f"r{i}", words, client="ab"[i % 2], max_tokens=5 + i % 9))
            trace.step()
        trace.scheduler.finish_requests(["r20", "r23"], RequestStatus.FINISHED_ABORTED)
        trace.run()
        plans.append((trace.scheduled, trace.emitted, trace.preempted))

    stock, ours = plans
    assert bool(stock[2]) == (blocks == 12)
    assert stock == ours


def test_deficits_are_shown_in_tokens():
    trace = fair(quantum=1000)
    trace.add(make_request("a", [1] * 50, client="a", max_tokens=1))
    trace.run()

    assert deficit(trace, "a") == 1000 - 50 - 2
    assert trace.scheduler._fair.policy.credit("a") == 948 * UNITS_PER_TOKEN

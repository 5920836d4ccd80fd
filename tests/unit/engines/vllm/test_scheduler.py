"""FairScheduler in a real vLLM Scheduler without weights: who is admitted, who gives way, what is set."""

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import (  # noqa: E402
    RequestStatus,
    StockScheduler,
    Trace,
    make_request,
    make_scheduler,
)
from tests.unit.engines.vllm.fair_trace import fair, prompt, service  # noqa: E402

from fairhit.core.service import Service  # noqa: E402
from fairhit.engines.vllm import FairScheduler  # noqa: E402
from fairhit.engines.vllm.preemption import _wanted_blocks  # noqa: E402
from fairhit.engines.vllm.scheduler import AsyncFairScheduler  # noqa: E402


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


def test_memory_pressure_takes_from_the_client_with_the_least_credit():
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


def test_a_full_batch_tries_no_request_and_refills_no_client():
    trace = fair(max_num_seqs=1, quantum=10)
    trace.add(make_request("a", [1] * 50, client="a", max_tokens=20))
    trace.step()
    trace.add(make_request("b", [2] * 50, client="b"))
    rounds = trace.scheduler._fair.policy.ledger.rounds

    for _ in range(5):
        trace.step()

    assert rounds == trace.scheduler._fair.policy.ledger.rounds


def test_less_memory_than_one_request_may_need_stops_the_engine_with_one_line():
    with pytest.raises(
        SystemExit, match=r"holds 128 tokens, one request may have 400.*lower --max"
    ):
        fair(blocks=9, max_model_len=400)


def test_a_request_larger_than_the_whole_cache_can_be_aborted():
    """
    A cache one block short of a request is accepted: a length that vLLM fitted to the memory may
    lack it. The stock queue then stops for good, and so does ours, until the request goes.
    """
    trace = fair(blocks=9, max_num_seqs=2, quantum=100, max_model_len=9 * 16)
    trace.add(make_request("huge", [1] * 140, client="a"))
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
    account, which always has a place.
    """
    trace = fair(scheduler=scheduler, max_clients=limit, max_num_seqs=2)
    for i in range(12):
        trace.add(make_request(f"r{i}", [i] * 40, client=f"c{i}"))
        trace.step()

    trace.run()

    assert len(trace.finished) == 12
    assert not trace.scheduler._queue.live


def test_idle_debtors_fill_the_table_and_a_stranger_is_served_all_the_same():
    """None of them may be forgotten, for that would forgive its debt; so strangers share an account."""
    trace = fair(max_clients=2, max_num_seqs=2, quantum=100)
    trace.add(*(make_request(n, [i] * 40, client=n, max_tokens=200) for i, n in enumerate("ab")))
    trace.run()

    trace.add(make_request("c", [9] * 40, client="c"))
    trace.run()

    assert "c" in trace.finished
    assert service(trace, "other") == Service(extend_len=40, cached_len=0, output_len=8)


def test_a_client_that_only_waits_is_seen():
    trace = fair(max_num_seqs=1)
    trace.add(make_request("a", [1] * 40, client="a"), make_request("b", [2] * 40, client="b"))

    assert "b" in trace.scheduler._metrics._pending


def test_a_client_forgotten_while_it_runs_pays_for_all_it_gets():
    trace = fair(max_clients=1, max_num_seqs=1)
    trace.add(make_request("a", [1] * 40, client="a", max_tokens=20))
    trace.step()
    trace.add(make_request("b", [2] * 40, client="b"))

    trace.run()

    assert service(trace, "a") == Service(extend_len=40, cached_len=0, output_len=20)


def test_what_came_through_remote_kv_counts_when_memory_runs_short():
    """vLLM admits such a request from a queue of its own, so we never see it begin to prefill."""
    trace = fair(blocks=15, max_num_seqs=3, quantum=1000, budget=64)
    trace.add(*(make_request(f"h{i}", [i] * 30, client="heavy", max_tokens=60) for i in range(2)))
    trace.step()
    trace.add(make_request("light", [9] * 160, client="light", max_tokens=4))
    trace.step()
    light = trace.scheduler.requests["light"]
    assert 0 < light.num_computed_tokens < light.num_tokens

    assert _wanted_blocks(trace.scheduler, spare=0) >= 64 // 16


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"scheduler": "dlmp"}, "additional_config.fairhit.scheduler: expected one of"),
        ({"quantum": "4096"}, "additional_config.fairhit.quantum: expected a whole number"),
        ({"weights": {"gold": 0}}, "fairhit.weights: weight of client 'gold': expected a positive"),
        ({"quantm": 1}, "additional_config.fairhit.quantm: unknown; expected one of scheduler"),
        (
            {"scheduler": "fcfs", "quantum": 1},
            "quantum: the scheduler fcfs has none; expected with",
        ),
        ({"scheduler": "fair", "quantum": 9, "overdraft": 10}, "overdraft: expected at most the"),
        (
            {"scheduler": "vtc", "overdraft": 1},
            "overdraft: the scheduler vtc has none; expected with",
        ),
        (
            {"cost": "context:2,1e300"},
            "fairhit.cost: cost 'context:2,1e300': expected a price from",
        ),
    ],
)
def test_a_wrong_setting_stops_the_engine_with_one_line(settings, line):
    with pytest.raises(SystemExit) as stopped:
        fair(**settings)

    assert line in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_settings_come_from_the_environment_too(monkeypatch):
    monkeypatch.setenv("FAIRHIT_SCHEDULER", "vtc")
    monkeypatch.setenv("FAIRHIT_WEIGHTS", "gold=2,silver=1.5")
    assert type(fair().scheduler._fair.policy).__name__ == "VTC"
    monkeypatch.setenv("FAIRHIT_QUANTUM", "many")
    with pytest.raises(SystemExit, match="FAIRHIT_QUANTUM: expected a number"):
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


def test_an_empty_prompt_waits_like_any_other():
    """vLLM's front end refuses one, its scheduler takes it: what a caller of the engine itself may send."""
    trace = fair(max_num_seqs=1)
    trace.add(make_request("first", [1] * 20), make_request("empty", []))
    trace.step()

    trace.scheduler.finish_requests("empty", RequestStatus.FINISHED_ABORTED)
    trace.run()

    assert trace.finished.keys() == {"first"}

"""SGLang takes our names, leaves its own policies alone, and never starts as if it were fair."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sglang.srt.lora.lora_manager import LoRAManager
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler import Scheduler as StockScheduler
from sglang.srt.runtime_context import derive_attention_ranks, derive_spawn_ranks
from sglang.srt.server_args import ServerArgs

from fairhit.engines.client_metrics import ClientMetrics, EngineTotals
from fairhit.engines.sglang import versions
from fairhit.engines.sglang.hooks import PARTS, POLICIES, add_policies, make_fair
from fairhit.engines.sglang.radix.rust_nodes import CORE_VARIABLE
from fairhit.engines.sglang.scheduler import FairSglangPolicy, FairSglangScheduler, writes_metrics
from fairhit.errors import ConfigError
from tests.sglang.server import Server

# Imports of a whole engine, on a machine that may be busy.
EXIT_TIMEOUT_S = 300.0


def arguments(policy: str, **more: object) -> SimpleNamespace:
    """SGLang's ServerArgs, as far as we read them."""
    return SimpleNamespace(schedule_policy=policy, disaggregation_mode="null", **more)


def choices(parser: argparse.ArgumentParser) -> set[str]:
    (action,) = (each for each in parser._actions if each.dest == "schedule_policy")
    return set(action.choices)


def test_our_policies_are_choices_of_the_real_command_line(plugged):
    parser = argparse.ArgumentParser()

    ServerArgs.add_cli_args(parser)

    assert set(POLICIES) < choices(parser)
    for policy in ("dlpm", "vtc", "drr", "lpm", "fcfs"):
        given = parser.parse_args(["--model-path", "x", "--schedule-policy", policy])
        assert given.schedule_policy == policy
    assert not {"fcfs", "lpm"} & set(POLICIES)  # those are SGLang's own


def test_a_command_line_without_the_flag_is_an_error(plugged):
    with pytest.raises(LookupError):
        add_policies(None, argparse.ArgumentParser())


def test_where_a_hook_did_not_take_our_policies_are_no_choices(plugged, monkeypatch, caplog):
    """SGLang only logs that: the parts of a request would be nobody's, in silence."""
    stock = GenerateReqInput.__getitem__.__wrapped__
    monkeypatch.setattr(GenerateReqInput, "__getitem__", stock)
    parser = argparse.ArgumentParser()

    ServerArgs.add_cli_args(parser)

    assert not set(POLICIES) & choices(parser)
    assert f"no hook on {PARTS}" in caplog.text


@pytest.fixture
def stock(monkeypatch):
    """A Scheduler before its `__init__`, and the policies with which that was called."""
    monkeypatch.setenv(CORE_VARIABLE, "")  # so that what is set in the test does not stay
    monkeypatch.delenv(CORE_VARIABLE)
    called: list[str] = []

    def original(scheduler: object, server_args: SimpleNamespace) -> None:
        called.append(server_args.schedule_policy)

    return object.__new__(StockScheduler), original, called


def test_sglang_s_own_policies_are_left_alone(stock):
    scheduler, original, called = stock

    make_fair(original, scheduler, arguments("lpm"))

    assert type(scheduler) is StockScheduler
    assert called == ["lpm"]
    assert CORE_VARIABLE not in os.environ


def test_ours_make_a_fair_scheduler_before_it_is_initialised(stock):
    scheduler, original, called = stock

    make_fair(original, scheduler, arguments("vtc"))

    assert type(scheduler) is FairSglangScheduler
    assert scheduler.fair_settings.scheduler == "vtc"
    assert called == ["vtc"]


@pytest.mark.parametrize(
    ("more", "environment", "said"),
    [
        ({"disaggregation_mode": "decode"}, {}, "--disaggregation-mode decode: cannot be had"),
        ({"dllm_algorithm": "LowConfidence"}, {}, "--dllm-algorithm LowConfidence"),
        ({"lora_drain_wait_threshold": 1.0}, {}, "--lora-drain-wait-threshold 1.0"),
        ({"pp_size": 2, "enable_lora": True}, {}, "--pp-size 2: LoRA slots cannot rotate"),
        ({}, {"FAIRHIT_QUANTUM": "much"}, "FAIRHIT_QUANTUM: expected a number"),
        ({}, {"FAIRHIT_QUANTUM": "0"}, "FAIRHIT_QUANTUM: expected a whole number above 0"),
    ],
)
def test_what_cannot_be_fair_ends_the_process_in_one_line(
    stock, monkeypatch, more, environment, said
):
    scheduler, original, called = stock
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server_args = arguments("dlpm")
    vars(server_args).update(more)

    with pytest.raises(SystemExit) as ended:
        make_fair(original, scheduler, server_args)

    assert str(ended.value).startswith("fairhit: ") and said in str(ended.value)
    assert "\n" not in str(ended.value)
    assert called == []


@pytest.mark.parametrize(
    ("more", "environment"),
    [
        ({"pp_size": 2, "enable_lora": True}, {"FAIRHIT_ADAPTER_TURN": "0"}),
        ({"pp_size": 2, "enable_lora": False}, {}),
        ({"pp_size": 1, "enable_lora": True}, {}),
    ],
)
def test_stages_and_adapters_are_no_fault_where_there_are_no_turns(
    stock, monkeypatch, more, environment
):
    scheduler, original, called = stock
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    make_fair(original, scheduler, arguments("dlpm", **more))

    assert called == ["dlpm"]


def test_an_adder_of_somebody_else_is_refused_before_the_first_request(monkeypatch):
    """Ours stands in its place, and what it does would be left out in silence."""
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.schedule_policy = "dlpm"
    scheduler._refuse_other_adders()

    monkeypatch.setattr(StockScheduler, "get_prefill_adder_class", lambda _: dict)
    with pytest.raises(ConfigError, match="dlpm: cannot be had with the adder <class 'dict'>"):
        scheduler._refuse_other_adders()


def test_a_rank_that_writes_no_metrics_keeps_none():
    """A single rank writes metrics; the others would keep a sum for each client for ever."""
    scheduler = object.__new__(FairSglangScheduler)
    scheduler._fair_metrics = ClientMetrics(
        waiting=lambda _: 0, deficit=lambda _: 0.0, totals=lambda: EngineTotals(0, 0, 0)
    )

    for writes, kept in ((True, 1), (False, 0)):
        scheduler._writes_metrics = writes
        scheduler.service_of(f"{writes}").output_len += 1
        assert scheduler.service_of(f"{writes}").output_len == kept


@pytest.mark.parametrize("pp_size", [1, 2])
@pytest.mark.parametrize(
    ("attn_dp_size", "attn_cp_size", "attn_tp_size"), [(1, 1, 4), (4, 1, 1), (2, 1, 2), (2, 2, 2)]
)
def test_each_attention_group_has_one_rank_that_writes_metrics_and_no_other_stage(
    attn_dp_size, attn_cp_size, attn_tp_size, pp_size
):
    """With --enable-dp-attention each group has clients of its own; a stage computes those of the first."""
    tp_size = attn_dp_size * attn_cp_size * attn_tp_size
    writing = []
    for world_rank in range(tp_size * pp_size):
        ranks = derive_spawn_ranks(
            world_rank=world_rank, tp_size=tp_size, ep_join_rank_offset=0,
            attn_cp_size=attn_cp_size, attn_tp_size=attn_tp_size,
            moe_dp_size=1, moe_ep_size=1,
        )  # fmt: skip
        attn_tp_rank, attn_dp_rank = derive_attention_ranks(
            tp_rank=ranks["tp_rank"], attn_tp_size=attn_tp_size, attn_cp_size=attn_cp_size
        )
        if writes_metrics(SimpleNamespace(**ranks, attn_tp_rank=attn_tp_rank)):
            writing.append((ranks["pp_rank"], attn_dp_rank))

    assert writing == [(0, attn_dp_rank) for attn_dp_rank in range(attn_dp_size)]


def test_a_look_is_at_the_batch_that_sglang_is_about_to_fill():
    """After a prefill into an empty engine its own `running_batch` is still the old, empty one."""
    begun: list[tuple[object, object]] = []
    policy = object.__new__(FairSglangPolicy)
    policy.queue_adapter = SimpleNamespace(begin_pass=lambda *given: begun.append(given))
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.running_batch, scheduler.chunked_req = SimpleNamespace(reqs=[]), of_batch()
    runs, queue = of_batch(), []
    batch = SimpleNamespace(reqs=[runs, of_batch(is_over=True)])

    policy.calc_priority(queue, batch, processed_tokens=0)

    assert begun == [(queue, batch)]
    assert list(scheduler.running_requests(batch)) == [runs, scheduler.chunked_req]


def test_pinned_adapters_are_known_as_sglang_counts_them():
    """Pinned adapters are read from SGLang's LoRA manager, as SGLang's own check of a batch does."""
    pinned, plain = (SimpleNamespace(pinned=each) for each in (True, False))
    manager = object.__new__(LoRAManager)
    manager.max_loras_per_batch, manager.num_pinned_loras = 3, 1
    manager.lora_refs = {"p": pinned, "a": plain, "b": plain, "c": plain}
    manager.memory_pool = manager
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.max_loras_per_batch, scheduler.enable_lora = 3, True
    scheduler.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(lora_manager=manager))

    def is_pinned(lora_id: str | None) -> bool:
        return scheduler.is_pinned(SimpleNamespace(lora_id=lora_id))

    assert [is_pinned(each) for each in ("p", "a", None, "unloaded")] == [True] + 3 * [False]
    for batch in ({"a"}, {"p", "a", "b"}, {"a", None, "b"}, {"a", "b", "c"}, {"p", None}):
        fits = len([each for each in batch if not is_pinned(each)]) <= scheduler.slots()
        assert manager.validate_lora_batch(batch) == fits, batch


def test_a_scheduler_that_somebody_else_has_replaced_is_not_ours(stock):
    _, original, called = stock

    class Another(StockScheduler):
        pass

    with pytest.raises(SystemExit, match="Another, which is not SGLang's own"):
        make_fair(original, object.__new__(Another), arguments("dlpm"))
    assert called == []


def test_a_version_without_what_we_use_is_refused(stock, monkeypatch):
    """Half of the hooks would be worse than none: order without charges, or charges without order."""
    scheduler, original, called = stock
    monkeypatch.delattr(StockScheduler, "update_running_batch")

    with pytest.raises(SystemExit, match=r"this SGLang has no Scheduler\.update_running_batch"):
        make_fair(original, scheduler, arguments("dlpm"))
    assert called == []


def test_a_version_whose_requests_lack_what_we_read_is_refused(stock, monkeypatch):
    """Else it would start, and the first request would end it."""
    scheduler, original, _ = stock
    monkeypatch.setattr(versions, "_ARGUMENTS", ((Req, "routing_key"), (Req, "of_a_later_version")))

    with pytest.raises(SystemExit, match=r"this SGLang has no Req\.of_a_later_version;"):
        make_fair(original, scheduler, arguments("dlpm"))


def test_a_version_that_makes_its_adder_elsewhere_is_refused(stock, monkeypatch):
    """Else ours would never be asked: fcfs, nothing charged, and not a word of it."""
    scheduler, original, called = stock
    monkeypatch.delattr(StockScheduler, "get_prefill_adder_class", raising=False)
    monkeypatch.delattr(versions.module, "PrefillAdder")

    with pytest.raises(SystemExit, match=r"this SGLang has no Scheduler\.get_prefill_adder_class;"):
        make_fair(original, scheduler, arguments("dlpm"))
    assert called == []


def test_a_version_that_tells_nobody_of_aborts_is_refused(monkeypatch):
    """Without these hooks a request aborted while it waits would be kept for ever."""
    monkeypatch.delattr(StockScheduler, "send_abort_output", raising=False)
    scheduler = SimpleNamespace(ipc_channels=SimpleNamespace(send_to_tokenizer=object()))

    with pytest.raises(ConfigError, match=r"this SGLang has no Scheduler\.send_abort_output;"):
        versions.observe_aborts(scheduler, lambda _: None)


def of_batch(*, is_over: bool = False, is_retracted: bool = False) -> SimpleNamespace:
    """A request in a batch whose prompts were computed."""
    return SimpleNamespace(rid="r", finished=lambda: is_over, is_retracted=is_retracted)


@pytest.fixture
def computed(monkeypatch):
    """Hand a fair scheduler's `process_batch_result` a batch; of it the line has admitted `admitted`."""
    monkeypatch.setattr(StockScheduler, "process_batch_result", lambda *_: None)

    def process(*reqs: object, admitted: tuple[object, ...] = (), is_prefill: bool = True) -> None:
        scheduler = object.__new__(FairSglangScheduler)
        scheduler.schedule_policy, scheduler._writes_metrics = "dlpm", False
        scheduler._queue_adapter = SimpleNamespace(
            is_charged=lambda req: any(req is each for each in admitted), on_output=lambda _: None
        )
        mode = SimpleNamespace(is_extend=lambda: is_prefill)
        scheduler.process_batch_result(SimpleNamespace(forward_mode=mode, reqs=reqs), None)

    return process


def test_a_prefill_of_what_the_line_never_admitted_ends_the_server(computed):
    """The net below those two: whatever a version calls otherwise, it does not run on unfair."""
    seen, unseen = of_batch(), of_batch()

    with pytest.raises(ConfigError, match="dlpm: request r was admitted past the plug-in"):
        computed(seen, unseen, admitted=(seen,))


def test_what_ended_or_was_retracted_before_its_result_came_is_no_sign_of_that(computed):
    """With overlap scheduling a result comes a step late; and decoding is not looked at."""
    seen = of_batch()

    computed(seen, of_batch(is_over=True), of_batch(is_retracted=True), admitted=(seen,))
    computed(of_batch(), is_prefill=False)


def test_a_version_too_old_to_be_imported_is_refused_in_one_line(stock, monkeypatch):
    scheduler, original, called = stock
    monkeypatch.setitem(sys.modules, "fairhit.engines.sglang.scheduler", None)

    with pytest.raises(SystemExit, match="this SGLang is too old: ") as ended:
        make_fair(original, scheduler, arguments("dlpm"))
    assert "\n" not in str(ended.value) and called == []


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        # SGLang logs a plug-in that fails, and goes on; an operator may also leave it out by mistake.
        ({"SGLANG_PLUGINS": "another"}, "invalid choice: 'dlpm'"),
        ({"FAIRHIT_QUANTUM": "much"}, "fairhit: FAIRHIT_QUANTUM: expected a number"),
    ],
)
def test_a_server_that_cannot_be_fair_does_not_start(tmp_path: Path, environment, said):
    server = Server(tmp_path, "dlpm", environment=environment)
    try:
        assert server.process.wait(EXIT_TIMEOUT_S) != 0
    except subprocess.TimeoutExpired:
        pytest.fail(server.log[-3000:])
    finally:
        server.stop()
    assert said in server.log

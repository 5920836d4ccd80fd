"""FairSglangScheduler and FairAdder alone, with SGLang's own classes and no engine."""

import os
from types import SimpleNamespace

import pytest
from sglang.srt.managers.io_struct import AbortReq
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder
from sglang.srt.managers.scheduler import Scheduler as StockScheduler

from fairhit.engines.sglang import versions
from fairhit.engines.sglang.radix.rust_nodes import CORE_VARIABLE, OURS, PYTHON
from fairhit.engines.sglang.scheduler import FairAdder, FairSglangScheduler, take_over
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue

SEATS = 4


def request(lora_id: str | None = None, *, is_over: bool = False) -> SimpleNamespace:
    kv = SimpleNamespace(holds_kv=False)
    return SimpleNamespace(lora_id=lora_id, finished=lambda: is_over, kv=kv)


class Live:
    """The attributes of a request that an audit reads."""

    def __init__(self, *, is_over: bool = False, is_retracted: bool = False) -> None:
        self.is_over, self.is_retracted = is_over, is_retracted

    def finished(self) -> bool:
        return self.is_over


def batch_of(*reqs: object) -> SimpleNamespace:
    return SimpleNamespace(reqs=list(reqs), batch_is_full=False, is_empty=lambda: not reqs)


@pytest.mark.parametrize(
    ("verdict", "added", "running", "is_room", "is_full"),
    [
        (AddReqResult.CONTINUE, 0, 0, True, False),
        (AddReqResult.CONTINUE, 1, SEATS - 2, True, False),
        (AddReqResult.CONTINUE, 1, SEATS - 1, False, True),
        (AddReqResult.OTHER, 1, 1, False, False),
        (AddReqResult.NO_TOKEN, 1, 0, False, True),
        (AddReqResult.NO_TOKEN, 0, 1, False, True),
        # Nobody would leave an empty engine, and so nobody would ever be looked at again.
        (AddReqResult.NO_TOKEN, 0, 0, False, False),
    ],
)
def test_there_is_room_as_sglang_s_walk_itself_would_find(
    verdict, added, running, is_room, is_full
):
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.get_num_allocatable_reqs = lambda running_bs, **_: SEATS - running_bs
    batch = batch_of(*(request() for _ in range(running)))
    adder = SimpleNamespace(
        running_batch=batch,
        can_run_list=[request() for _ in range(added)],
        budget_state=lambda: verdict,
    )

    assert (scheduler.has_capacity(adder), batch.batch_is_full) == (is_room, is_full)


def test_who_is_retracted_first_is_last_in_the_order_and_the_others_stay_in_sglang_s():
    """SGLang pops from the end."""
    scheduler = object.__new__(FairSglangScheduler)
    reqs = [request() for _ in range(5)]
    scheduler._queue_adapter = SimpleNamespace(victims=lambda running, _: [running[2], running[0]])

    assert scheduler._retraction_order(lambda _: [4, 3, 2, 1, 0], reqs) == [4, 3, 1, 0, 2]


def test_an_adapter_s_slot_is_held_by_who_runs_or_was_just_added():
    scheduler = object.__new__(FairSglangScheduler)
    adder = SimpleNamespace(
        can_run_list=[request("added")],
        running_batch=batch_of(request("runs"), request("ended", is_over=True), request()),
    )

    held = [
        scheduler.holds_lora_slot(adder, request(each))
        for each in ("added", "runs", "ended", "none", None)
    ]

    assert held == [True, True, False, False, True]


@pytest.fixture
def told(monkeypatch) -> tuple[FairSglangScheduler, list[object]]:
    """A scheduler of which only the line is there, and what that was told."""
    heard: list[object] = []
    for name in ("send_abort_output", "process_batch_result"):
        monkeypatch.setattr(StockScheduler, name, lambda *_: heard.append("stock"), raising=False)
    scheduler = object.__new__(FairSglangScheduler)
    scheduler.__dict__["_queue_adapter"] = SimpleNamespace(
        remove=heard.append, on_output=heard.extend, sync=heard.extend, is_iteration_expected=False
    )
    scheduler._writes_metrics = False
    return scheduler, heard


def test_who_is_aborted_leaves_the_line_after_sglang_has_said_so(told):
    scheduler, heard = told

    scheduler.send_abort_output(None, "aborted")

    assert heard == ["stock", "aborted"]


def test_each_batch_is_told_to_the_line_when_its_result_is_there(told):
    scheduler, heard = told
    mode = SimpleNamespace(is_extend=lambda: False)

    scheduler.process_batch_result(SimpleNamespace(forward_mode=mode, reqs=["a", "b"]), None)

    assert heard == ["stock", "a", "b"]


def test_a_list_made_anew_is_a_queue_of_ours_again(told):
    scheduler, heard = told

    scheduler.waiting_queue = ["a", "b"]

    assert type(scheduler.waiting_queue) is SglangWaitingQueue
    assert heard == ["a", "b"]


def test_an_audit_holds_the_records_against_what_waits_and_what_really_runs(told):
    """A batch also has those that ended, or were retracted, since it was made; neither runs."""
    scheduler, _ = told
    runs, ended, retracted, waits = Live(), Live(is_over=True), Live(is_retracted=True), Live()
    shown: list[tuple[list[object], list[object]]] = []

    def differences(waiting: dict[object, None], running: dict[object, None]) -> list[str]:
        shown.append(([*waiting], [*running]))
        return ["r has ended and has a record"]

    scheduler._queue_adapter.differences = differences
    scheduler.waiting_queue = [waits]
    scheduler.chunked_req = None
    scheduler.collect_inflight_reqs = lambda: [runs, ended, retracted, waits]

    with pytest.raises(AssertionError, match="audit: r has ended and has a record"):
        scheduler._audited_next_batch()

    assert shown == [([waits], [runs])]


@pytest.mark.parametrize("is_added", [True, False])
def test_only_who_was_added_is_admitted(monkeypatch, is_added):
    """
    Admission does not depend on SGLang's verdict: a chunk is added with the verdict that nothing more fits.
    """
    admitted: list[object] = []
    adder = object.__new__(FairAdder)
    adder.can_run_list, adder._queue_adapter = [], SimpleNamespace(on_admit=admitted.append)

    def add_one_req(self: FairAdder, req: object) -> AddReqResult:
        self.can_run_list += [req] * is_added
        return AddReqResult.OTHER

    monkeypatch.setattr(PrefillAdder, "add_one_req", add_one_req)

    assert adder.add_one_req("req") is AddReqResult.OTHER
    assert admitted == ["req"] * is_added


@pytest.mark.parametrize("flag", ["enable_hierarchical_cache", "enable_lmcache", "another"])
def test_with_a_host_cache_sglang_takes_the_tree_in_python(monkeypatch, flag):
    """Of the one in Rust it is not seen what leaves the device for the host."""
    monkeypatch.setenv(CORE_VARIABLE, "")  # so that what is set in the test does not stay
    monkeypatch.delenv(CORE_VARIABLE)
    given = {"schedule_policy": "dlpm", "disaggregation_mode": "null", flag: True}

    take_over(object.__new__(StockScheduler), SimpleNamespace(**given))

    assert os.environ[CORE_VARIABLE] == (OURS if flag == "another" else PYTHON)


# -- SGLang 0.5.20 to 0.5.22 ------------------------------------------------------------------------


def test_of_what_is_sent_to_the_tokenizer_only_aborts_of_requests_are_ends(monkeypatch):
    monkeypatch.delattr(StockScheduler, "send_abort_output", raising=False)
    sent, ended = [], []
    sender = SimpleNamespace(send_output=lambda output, of: sent.append((output, of)))
    scheduler = SimpleNamespace(ipc_channels=SimpleNamespace(send_to_tokenizer=sender))
    req, abort = object.__new__(Req), AbortReq(rid="r")

    versions.observe_aborts(scheduler, ended.append)
    told = [(abort, req), (abort, None), ("output", req)]
    for output, of in told:
        sender.send_output(output, of)

    assert sent == told
    assert ended == [req]


def test_where_no_method_makes_the_adder_its_name_in_the_module_does(monkeypatch):
    monkeypatch.delattr(StockScheduler, "get_prefill_adder_class", raising=False)
    monkeypatch.setattr(versions.module, "PrefillAdder", PrefillAdder)

    versions.use_adder(ours := object)  # type: ignore[arg-type]

    assert versions.module.PrefillAdder is ours

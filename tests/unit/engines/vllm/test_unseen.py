"""Requests that vLLM moves, runs and ends without the queue, on the bare Scheduler that is installed.

Since 0.32 vLLM queues by itself what holds blocks: requests whose KV is loaded, and streaming sessions.
"""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import RequestStatus, Trace, make_request, make_scheduler  # noqa: E402
from tests.unit.engines.vllm.vllm_connector import QuietConnector  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput  # noqa: E402

from fairhit.engines.lora_slots import Taker  # noqa: E402
from fairhit.engines.vllm import FairScheduler  # noqa: E402
from fairhit.errors import AuditFailed  # noqa: E402

ADAPTERS = {"x": 1, "a": 2, "b": 3}


class Connector(QuietConnector):
    """A test's KV connector: a request's KV loads in the background, or is not decided yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loads: set[str] = set()
        self.undecided: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        if request.request_id in self.undecided:
            return None, False
        return (16, True) if request.request_id in self.loads else (0, False)


class Engine(Trace):
    """With so many slots for adapters, and a connector."""

    def __init__(self, *, slots: int = 1, run_ahead: bool = False, **options: Any) -> None:
        transfer = KVTransferConfig(
            kv_connector="Connector", kv_connector_module_path=__name__, kv_role="kv_both"
        )
        options = {"max_num_seqs": 2, **options}
        made = make_scheduler(
            FairScheduler, caching=False, kv_transfer=transfer, run_ahead=run_ahead, **options
        )
        super().__init__(made, run_ahead=run_ahead)
        made.lora_config = SimpleNamespace(max_loras=slots)
        self.connector: Connector = made.connector
        self.received: set[str] = set()  # whose KV comes with the next step
        self._numbers = count()

    def ask(self, kind: str, *, tokens: int = 3, length: int = 20, **options: Any) -> str:
        """A request for the adapter that it is named for; `m` is the model itself."""
        name = f"{kind}{next(self._numbers)}"
        self.add(self.request(name, tokens=tokens, length=length, **options))
        return name

    def request(self, name: str, *, tokens: int, length: int = 20, **options: Any) -> Any:
        request = make_request(name, [5] * length, max_tokens=tokens, caching=False, **options)
        if number := ADAPTERS.get(name[0]):
            request.lora_request = SimpleNamespace(lora_int_id=number, lora_name=name[0])
        return request

    def _sampled(self, planned: Any, sample: Any) -> Any:
        sampled = super()._sampled(planned, sample)
        sampled.kv_connector_output = KVConnectorOutput(finished_recving=set(self.received))
        self.received.clear()
        return sampled


def serves_a_and_b(engine: Engine) -> None:
    """Twenty of each end, in not much more steps than their tokens take."""
    names = [engine.ask(kind) for _ in range(20) for kind in "ab"]
    engine.run(steps=400)
    assert set(names) <= engine.finished.keys()


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("ends", ["by itself", "aborted while it waits", "aborted while it runs"])
def test_a_request_that_loaded_its_kv_is_waited_for_no_more_once_it_ended(ends, slots):
    """
    A request's KV arrived while another adapter had the slot; vLLM then ran it without asking the queue,
    with all rows of the batch taken. For ever after, its adapter was given a slot that no request used.
    """
    engine = Engine(slots=slots)
    holders = "a" if slots == 1 else "ab"
    engine.connector.loads.add("x0")
    late = engine.ask("x", tokens=4)
    engine.step()
    held = [engine.ask(kind, tokens=6) for kind in holders]
    engine.step()
    engine.received.add(late)
    engine.step()
    engine.step()
    engine.ask("m", tokens=40)
    while not set(held) <= engine.finished.keys():
        engine.step()
        if ends == "aborted while it waits":
            engine.scheduler.finish_requests(late, RequestStatus.FINISHED_ABORTED)
    if ends == "aborted while it runs":
        while late not in engine.running:
            engine.step()
        engine.scheduler.finish_requests(late, RequestStatus.FINISHED_ABORTED)

    serves_a_and_b(engine)

    assert (
        not engine.scheduler._rotation._waiting_takers and not engine.scheduler._rotation._running
    )


@pytest.mark.parametrize("run_ahead", [False, True])
def test_a_session_is_waited_for_no_more_once_its_last_turn_ended(run_ahead):
    """
    A session's last input and its end were queued: vLLM runs the turn and ends it without asking the queue.
    """
    engine = Engine(max_num_seqs=1, run_ahead=run_ahead)
    session = engine.ask("x", tokens=3, resumable=True)
    engine.step()
    engine.add(engine.request(session, tokens=3, resumable=True))
    engine.add(engine.request(session, tokens=3, resumable=False))
    engine.finished.clear()
    while engine.scheduler.requests:
        engine.step()
        engine.finished.clear()

    serves_a_and_b(engine)

    assert (
        not engine.scheduler._rotation._waiting_takers and not engine.scheduler._rotation._running
    )


def test_no_slot_is_kept_for_requests_that_wait_for_their_connector():
    """Three of x, and the connector does not answer: a and b have their turns as if x were not there."""
    engine = Engine(adapter_turn=100)
    waiting = [f"x{number}" for number in range(3)]
    engine.connector.undecided.update(waiting)
    assert [engine.ask("x") for _ in waiting] == waiting

    names = [engine.ask(kind) for _ in range(20) for kind in "ab"]
    for _ in range(200):
        engine.step()

    assert set(names) <= engine.finished.keys()
    engine.connector.undecided.clear()
    engine.run(steps=60)
    assert set(waiting) <= engine.finished.keys()


def test_a_request_that_waits_for_its_connector_does_not_speak_for_its_adapter():
    """
    The request's adapter has the slot, so it lacks something else; the others of the adapter run beside it.
    """
    engine = Engine(max_num_seqs=4)
    engine.connector.undecided.update({"a1", "a2", "a3"})
    names = [engine.ask("a", tokens=30) for _ in range(10)]
    engine.step()

    assert engine.running == [names[0], *names[4:7]]


def test_a_session_preempted_as_its_turn_ended_is_kept():
    """
    The output that ends its turn was in flight when it was preempted. vLLM queues it for its next turn
    and, in the same step, takes it out of the queue with those that ended; its caller would wait for ever.
    """
    engine = Engine(run_ahead=True)
    session = engine.ask("a", tokens=2, resumable=True)
    engine.step()
    engine.step()
    (held,) = engine.scheduler.running
    if not hasattr(held, "drop_stale_output"):
        return  # before 0.32 such an output trips an assert of vLLM's own
    engine.scheduler.running.clear()
    engine.scheduler._preempt_request(held, 0.0)
    for _ in range(4):
        engine.step()
    assert held.status == RequestStatus.WAITING_FOR_STREAMING_REQ

    engine.finished.clear()
    engine.add(engine.request(session, tokens=2, resumable=True))
    engine.add(engine.request(session, tokens=2, resumable=False))
    for _ in range(8):
        engine.step()

    assert session in engine.finished and not engine.scheduler.requests


def test_the_audit_names_a_request_that_is_gone_and_one_that_is_not_known():
    engine = Engine()
    engine.ask("m", tokens=9)
    engine.scheduler._rotation.add_waiting("ghost", Taker("c", "x"))
    with pytest.raises(AuditFailed, match=r"ghost waits for a slot as Taker.* not None"):
        engine.step()

    engine.scheduler._rotation.remove_waiting("ghost")
    engine.scheduler._queue.end("m0")
    with pytest.raises(AuditFailed, match=r"m0 is live and not in the records of the queue"):
        engine.step()


def queue_again(engine: Engine) -> None:
    (request,) = engine.scheduler.running
    engine.scheduler._queue._ready[request.request_id] = request


def queue_what_runs(engine: Engine) -> None:
    queue_again(engine)
    engine.scheduler.running.clear()


def stop_what_runs(engine: Engine) -> None:
    (request,) = engine.scheduler.running
    request.status = RequestStatus.WAITING


def queue_what_ended(engine: Engine) -> None:
    engine.scheduler._queue._ready["m9"] = engine.request("m9", tokens=1)


def leave_an_adapter_giving_way(engine: Engine) -> None:
    engine.scheduler._rotation._draining["x"] = None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (queue_again, "m0 is in running and in ready"),
        (queue_what_runs, "m0 is in ready, and running in the core"),
        (stop_what_runs, "m0 has status WAITING in running"),
        (queue_what_ended, "m9 has ended and is in the containers"),
        (lambda engine: engine.scheduler.running.clear(), "m0 is live and not in the containers"),
        (
            lambda engine: engine.scheduler._fair.cancel(engine.scheduler._queue.live["m0"]),
            "m0 is live and not in the core",
        ),
        (
            lambda engine: engine.scheduler._rotation._running.update(m9=Taker("c", "x")),
            "m9 has ended and holds an adapter's slot",
        ),
        (leave_an_adapter_giving_way, r"adapters \['x'\] are drained and have no slot"),
    ],
)
def test_the_audit_names_each_kind_of_fault(fault, said):
    engine = Engine()
    engine.ask("m", tokens=9)
    engine.step()
    fault(engine)

    with pytest.raises(AuditFailed, match=said):
        engine.scheduler._audit()


def test_the_audit_costs_nothing_where_it_is_off(monkeypatch):
    monkeypatch.setattr("fairhit.engines.vllm.scheduler.audit", None)
    Engine(audit=False).run()

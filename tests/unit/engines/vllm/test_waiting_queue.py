"""VllmWaitingQueue called as vLLM calls it: remote KV and streaming input, which a bare Scheduler lacks."""

from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from vllm.v1.request import RequestStatus  # noqa: E402

from fairhit.core.cache.block_set import BlockCache  # noqa: E402
from fairhit.core.fair_queue import FairQueue  # noqa: E402
from fairhit.core.service import Service  # noqa: E402
from fairhit.engines.lora_slots import LoraSlotRotation  # noqa: E402
from fairhit.engines.vllm.skipped_queue import SkippedQueue  # noqa: E402
from fairhit.engines.vllm.waiting_queue import VllmWaitingQueue  # noqa: E402
from fairhit.policies import make_policy  # noqa: E402


def request(name: str, *, status=RequestStatus.WAITING, length=100):
    return SimpleNamespace(
        request_id=name,
        status=status,
        sampling_params=SimpleNamespace(extra_args={"fair_client": name[0]}),
        lora_request=None,
        num_prompt_tokens=length,
        num_tokens=length,
        num_computed_tokens=0,
        num_preemptions=0,
        max_tokens=10,
    )


class Engine:
    """The host, and the parts of `schedule()` that touch the queue."""

    def __init__(self, *, keeps_loading: bool, max_clients: int = 100) -> None:
        cache = BlockCache(block_size=16)
        self.core = FairQueue(make_policy("dlpm", cache=cache, max_clients=max_clients))
        mirror = SimpleNamespace(notify_listeners=lambda: None, prompt_units=lambda _: ())
        self.queue = VllmWaitingQueue(
            self.core,
            self,
            mirror,
            rotation=LoraSlotRotation(tenure_len=0),
            keeps_loading=keeps_loading,
            names_adapters=True,
            service_of=lambda _: Service(),
            on_removed=self.cancel,
        )
        self.loaded: set[str] = set()  # whose remote KV is there
        self.running: list[str] = []

    def has_free_slot(self):
        return True

    def promote(self, one):
        if one.request_id in self.loaded:
            one.status = RequestStatus.WAITING
        return one.status == RequestStatus.WAITING

    def kv_holding_with_adapter(self):
        return ()

    def is_between_inputs(self, one):
        return False

    def cancel(self, ours):
        self.queue.end(ours.id)
        self.core.cancel(ours)

    def step(self, load: dict[str, int] | None = None) -> list[str]:
        """A step in which those in `load` begin to load so many tokens, and the rest run."""
        self.queue.begin_step()
        skipped, run = [], []
        while self.queue:
            one = self.queue.peek_request()
            assert one is self.queue.pop_request()
            if one.request_id in (load or {}):
                one.status = RequestStatus.WAITING_FOR_REMOTE_KVS
                one.num_computed_tokens = load[one.request_id]
                skipped.insert(0, one)
            else:
                one.status = RequestStatus.RUNNING
                run.append(one)
        if self.queue._keeps_loading:
            self.queue.prepend_requests(skipped)
        self.queue.end_step({})
        self.running += [one.request_id for one in run]
        return [one.request_id for one in run]

    def paid(self, client: str) -> int:
        return self.core.service(client).extend_len


@pytest.mark.parametrize("keeps_loading", [True, False])
def test_loading_remote_kv_is_charged_once_when_it_begins(keeps_loading):
    engine = Engine(keeps_loading=keeps_loading)
    engine.queue.add_request(request("a"))

    assert engine.step(load={"a": 80}) == []
    assert engine.paid("a") == 20

    if keeps_loading:  # else vLLM has a queue of its own for those that hold blocks
        assert len(engine.queue) == 1
        assert engine.step() == []
        engine.loaded.add("a")
        assert engine.step() == ["a"]
    assert engine.paid("a") == 20
    assert len(engine.queue) == 0


def test_what_holds_remote_kv_goes_before_all_others():
    engine = Engine(keeps_loading=True)
    engine.queue.add_request(request("a"))
    engine.step(load={"a": 80})
    engine.queue.add_request(request("b"))
    engine.loaded.add("a")

    assert engine.step() == ["a", "b"]


def test_a_request_whose_remote_kv_did_not_arrive_pays_nothing_twice():
    """0.32 puts it back here without its blocks, and it is not PREEMPTED."""
    engine = Engine(keeps_loading=False)
    lost = request("a")
    engine.queue.add_request(lost)
    engine.step(load={"a": 80})
    lost.status, lost.num_computed_tokens = RequestStatus.WAITING, 0

    engine.queue.prepend_requests([lost])

    assert engine.step() == ["a"]
    assert engine.paid("a") == 20


def test_a_failed_load_that_is_tried_again_leaves_the_queue_for_good():
    """0.32 takes it into its own queue of those that hold blocks, so it is not put back here."""
    engine = Engine(keeps_loading=False)
    lost = request("a")
    engine.queue.add_request(lost)
    engine.step(load={"a": 80})
    lost.status, lost.num_computed_tokens = RequestStatus.WAITING, 0
    engine.queue.prepend_requests([lost])

    assert engine.step(load={"a": 80}) == []

    assert engine.step() == []
    assert len(engine.queue) == 0
    assert engine.paid("a") == 20


def test_a_client_forgotten_while_held_is_served_on_the_shared_account():
    """The record of one that only waits for a grammar may be needed for a newcomer's."""
    engine = Engine(keeps_loading=True, max_clients=1)
    held = request("a", status=RequestStatus.WAITING_FOR_STREAMING_REQ)
    engine.queue.add_request(held)
    engine.queue.add_request(request("b"))
    engine.loaded.add("a")

    assert engine.step() == ["a", "b"]
    assert engine.paid("other") == 100
    engine.queue.remove_request(held)
    assert "a" not in engine.queue.live


def test_an_abort_while_loading_keeps_the_charge_and_leaves_nothing():
    engine = Engine(keeps_loading=True)
    one = request("a")
    engine.queue.add_request(one)
    engine.step(load={"a": 80})

    engine.queue.remove_requests({id(one): one}.values())

    assert len(engine.queue) == len(engine.core) == 0
    assert not engine.queue.live
    assert engine.core.service("a") == Service(extend_len=20, cached_len=80, output_len=0)


def test_a_streaming_session_waits_for_its_next_turn_and_then_goes_first():
    engine = Engine(keeps_loading=True)
    session = request("a")
    engine.queue.add_request(session)
    engine.step()
    session.status = RequestStatus.WAITING_FOR_STREAMING_REQ
    engine.queue.add_request(session)
    engine.queue.add_request(request("b"))

    assert engine.step() == ["b"]
    assert len(engine.queue) == 1
    session.status = RequestStatus.WAITING  # its next input came
    engine.queue.add_request(request("c"))
    assert engine.step() == ["a", "c"]


def test_asking_settles_but_changes_nothing_else():
    engine = Engine(keeps_loading=True)
    engine.queue.add_request(request("a"))
    engine.queue.begin_step()
    assert [bool(engine.queue) for _ in range(3)] == [True] * 3
    assert engine.queue.peek_request() is engine.queue.peek_request()
    assert [one.request_id for one in engine.queue] == ["a"]
    assert engine.paid("a") == 0


def test_the_queue_of_skipped_requests_is_never_drained_first():
    """0.20 to 0.26 serve it before all others, which would be a way around fairness."""
    engine = Engine(keeps_loading=True)
    skipped = SkippedQueue(engine.queue)
    blocked = request("a", status=RequestStatus.WAITING_FOR_STREAMING_REQ)
    skipped.add_request(blocked)

    assert not skipped
    assert len(skipped) == 0
    assert len(engine.queue) == 1
    assert list(skipped) == list(reversed(skipped)) == [blocked]
    with pytest.raises(IndexError):
        skipped.peek_request()
    skipped.remove_requests([blocked])
    assert len(engine.queue) == 0


def test_an_empty_queue_says_so():
    engine = Engine(keeps_loading=True)
    engine.queue.begin_step()
    assert not engine.queue
    with pytest.raises(IndexError):
        engine.queue.pop_request()


def test_what_waits_is_listed_as_it_arrived_after_what_was_preempted():
    """vLLM's own tests read the queue so; whether one is blocked or was skipped does not matter."""
    engine = Engine(keeps_loading=False)
    names = ("WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", "WAITING_FOR_FSM")  # the latter until 0.15
    grammar = next(getattr(RequestStatus, n) for n in names if hasattr(RequestStatus, n))
    ran, blocked, waits, late = (
        request("a0"), request("b1", status=grammar), request("a2"), request("b3", status=grammar)
    )  # fmt: skip
    for one in (ran, blocked):
        engine.queue.add_request(one)
    assert engine.step() == ["a0"]
    for one in (waits, late):
        engine.queue.add_request(one)
    ran.status = RequestStatus.PREEMPTED
    engine.queue.prepend_request(ran)

    assert list(engine.queue) == [ran, blocked, waits, late]
    assert list(reversed(engine.queue)) == [late, waits, blocked, ran]

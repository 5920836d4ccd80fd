"""LoRA adapters as clients, and their turns at too few slots, on a bare vLLM Scheduler."""

from collections import Counter
from itertools import count, cycle
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import RequestStatus, Trace, make_request  # noqa: E402
from tests.unit.engines.vllm.fair_trace import fair, service  # noqa: E402

from fairhit.engines.skipped_requests import SkippedRequests  # noqa: E402
from fairhit.policies import IN_ENGINES, WITHOUT_CREDIT  # noqa: E402

# Several lengths each, so that a slot is seldom free; by prompts alone all three would be alike.
LENGTHS = {"a": cycle([2, 9, 4, 7, 3, 8]), "b": cycle([20, 30, 25]), "c": cycle([1, 3, 2])}
DRAIN = 4 * (20 + 2 * 30)  # what four requests receive, at most
numbers = count()
adapters: dict[str, int] = {}  # vLLM's numbers for them


def with_slots(slots: int = 1, **options) -> Trace:
    if options.get("scheduler", "dlpm") in {"dlpm", "dlpm-predict", "drr"}:
        options["quantum"] = 100
    trace = fair(max_num_seqs=4, caching=False, **options)
    trace.scheduler.lora_config = SimpleNamespace(max_loras=slots)
    return trace


def ask(
    trace: Trace,
    adapter: str | None,
    *,
    tokens: int = 5,
    client: str | None = None,
    blocked: bool = False,
) -> str:
    number = next(numbers)
    name = f"{adapter}{number}"
    request = make_request(
        name, [number % 400] * 20, caching=False, max_tokens=tokens, client=client
    )
    if adapter:
        request.lora_request = SimpleNamespace(
            lora_int_id=adapters.setdefault(adapter, len(adapters) + 1), lora_name=adapter
        )
    if blocked:  # by a grammar that is never compiled
        names = (
            "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
            "WAITING_FOR_FSM",
        )  # the latter until 0.15
        request.status = next(getattr(RequestStatus, n) for n in names if hasattr(RequestStatus, n))
        request.structured_output_request = SimpleNamespace(grammar=None)
    trace.add(request)
    return name


def flood(trace: Trace, *adapters: str, steps: int) -> None:
    """Keep four requests of each adapter waiting or running, for some steps."""
    for _ in range(steps):
        present = Counter(name[0] for name in trace.scheduler.requests)
        for adapter in adapters:
            while present[adapter] < 4:
                ask(trace, adapter, tokens=next(LENGTHS[adapter]))
                present[adapter] += 1
        trace.step()


def received(trace: Trace, client: str) -> int:
    return service(trace, client).system_view()


@pytest.mark.parametrize(("turn", "is_served"), [(200, True), (0, False)])
def test_a_flood_on_the_only_slot_lets_another_adapter_in(turn, is_served):
    """Without turns it would wait as long as the flood lasts: whichever ends is followed by one alike."""
    trace = with_slots(adapter_turn=turn)
    flood(trace, "a", steps=10)
    late = ask(trace, "b")
    before = received(trace, "a")

    while late not in trace.finished and received(trace, "a") - before < 3000:
        flood(trace, "a", steps=1)

    assert (late in trace.finished) == is_served
    # A turn, what it may come late by, and the requests that drain.
    assert not is_served or received(trace, "a") - before <= 200 + 25 + 2 * DRAIN


FAIR = [name for name in IN_ENGINES if name not in WITHOUT_CREDIT]


@pytest.mark.parametrize(("slots", "scheduler"), [*((1, name) for name in FAIR), (2, "dlpm")])
def test_three_floods_get_alike(slots, scheduler):
    """However the policy orders those that have slots."""
    trace = with_slots(slots, scheduler=scheduler, adapter_turn=200)

    flood(trace, "a", "b", "c", steps=500)

    got = [received(trace, client) for client in "abc"]
    assert max(got) - min(got) <= 200 + 25 + 2 * DRAIN, got
    assert min(got) > 1000


def test_a_weight_is_a_share_of_the_slot():
    trace = with_slots(adapter_turn=200, weights={"a": 3})

    flood(trace, "a", "b", steps=600)

    assert 2.5 < received(trace, "a") / received(trace, "b") < 3.5


def test_who_needs_no_slot_is_admitted_while_an_adapter_gives_way():
    """The adapter's last request is long; the model itself and an adapter with a slot go on."""
    trace = with_slots(2, adapter_turn=100)
    ask(trace, "a", tokens=1000)
    ask(trace, "b", tokens=5)
    trace.step()
    ask(trace, "c")
    while not trace.scheduler._rotation.reserved:
        flood(trace, "b", steps=1)
    assert trace.scheduler._rotation.forbids("a") != trace.scheduler._rotation.forbids("b")

    plain = ask(trace, None, client="plain")
    for _ in range(12):
        trace.step()

    assert plain in trace.finished


def test_with_many_adapters_the_one_whose_turn_it_is_has_its_slot_at_once():
    """Two hundred wait, of which a step tries some; the one for which the slot was given up is among them."""
    trace = with_slots(adapter_turn=100)
    flood(trace, "a", steps=2)
    for number in range(200):
        ask(trace, f"other {number}")
    rotation = trace.scheduler._rotation
    while not rotation.reserved:
        flood(trace, "a", steps=1)
    name = rotation.reserved[0].adapter

    while any(running.startswith("a") for running in trace.running):
        trace.step()
    trace.step()

    assert [running for running in trace.running if running.startswith(name)]


def test_an_aborted_request_is_waited_for_no_more():
    trace = with_slots(adapter_turn=100)
    flood(trace, "a", steps=2)
    late = ask(trace, "b")
    while not trace.scheduler._rotation.reserved:
        flood(trace, "a", steps=1)

    trace.scheduler.finish_requests(late, RequestStatus.FINISHED_ABORTED)
    before = received(trace, "a")
    flood(trace, "a", steps=40)

    assert received(trace, "a") - before > 400
    assert not trace.scheduler._rotation.is_contended


def test_thousands_that_wait_for_a_slot_cost_a_step_what_a_few_cost(monkeypatch):
    """Counted are requests that are retried and skipped again."""
    moved = Counter()
    add = SkippedRequests.add

    def counting(*args, **keywords):
        moved[waiting] += 1
        add(*args, **keywords)

    for waiting in (50, 2000):
        trace = with_slots(adapter_turn=100)
        ask(trace, "a", tokens=4000)
        trace.step()
        for _ in range(waiting):
            ask(trace, "b")
        for _ in range(20):  # all are skipped once
            trace.step()
        monkeypatch.setattr(SkippedRequests, "add", counting)
        for _ in range(20):
            trace.step()
        monkeypatch.undo()

    assert moved[50] == moved[2000] <= 20 * 10


def test_whose_turn_it_is_not_is_not_tried_again(monkeypatch):
    """Requests wait for each of many adapters in the middle of a's tenure; later all are served."""
    trace = with_slots(adapter_turn=600)
    ask(trace, "a", tokens=200)
    trace.step()
    asked = {ask(trace, f"adapter {number}", tokens=1) for number in range(50)}
    for _ in range(5):  # all are skipped once
        trace.step()
    skips, add = Counter(), SkippedRequests.add

    def counting(skipped, name, taker, *args, **keywords):
        skips[taker.client] += 1
        add(skipped, name, taker, *args, **keywords)

    monkeypatch.setattr(SkippedRequests, "add", counting)
    for _ in range(100):
        trace.step()
    monkeypatch.undo()
    assert not skips

    flood(trace, "a", steps=1)
    for _ in range(400):
        trace.step()
    assert not asked & trace.scheduler.requests.keys()


def test_who_is_not_named_is_its_adapter():
    """Nor is it named by `anonymous`, which a gateway writes that knows no client."""
    trace = with_slots(3)
    ask(trace, "a", client="anonymous", tokens=2)
    ask(trace, "b", client="key", tokens=3)
    trace.run()
    assert [service(trace, client).output_len for client in ("a", "b", "key")] == [2, 0, 3]

    off = with_slots(3, lora_clients=False)
    ask(off, "a", tokens=2)
    off.run()
    assert [service(off, client).output_len for client in ("a", "anonymous")] == [0, 2]


def test_many_users_of_one_adapter_are_no_flood_that_lasts():
    """Clients send one request each, so none receives a whole tenure; all of them together do."""
    trace = with_slots(adapter_turn=200)
    users = count()

    def crowd() -> None:
        while sum(name.startswith("a") for name in trace.scheduler.requests) < 6:
            ask(trace, "a", tokens=next(LENGTHS["a"]), client=f"user {next(users)}")
        trace.step()

    for _ in range(10):
        crowd()
    late = ask(trace, "b")
    served = next(users)
    while late not in trace.finished and next(users) - served < 200:
        crowd()

    assert late in trace.finished


def test_no_slot_is_kept_for_who_waits_for_a_grammar():
    """b would be next, having received nothing; a goes on until it can run, and c has its turn."""
    trace = with_slots(adapter_turn=100)
    flood(trace, "a", steps=2)
    blocked = ask(trace, "b", blocked=True)
    ready = ask(trace, "c")
    while not trace.scheduler._rotation.reserved:
        flood(trace, "a", steps=1)

    assert [taker.adapter for taker in trace.scheduler._rotation.reserved] == ["c"]
    while ready not in trace.finished:
        flood(trace, "a", steps=1)
    flood(trace, "a", steps=40)
    assert trace.scheduler._rotation.rotations == 1
    assert blocked not in trace.finished

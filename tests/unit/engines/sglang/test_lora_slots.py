"""Requests whose LoRA adapter has no slot in SGLang: cheap for a pass, and in no other request's way.

With the stand-in for SGLang's loop of `sglang_loop`; its real one is in tests/sglang/test_adapters.py.
"""

import pytest
from tests.unit.engines.sglang.sglang_loop import Engine, Req, clients

from fairhit.core.request import Request
from fairhit.engines.lora_slots import Taker
from fairhit.engines.sglang.lora_slots import MAX_SKIPPED_PER_PASS
from fairhit.engines.skipped_requests import (
    RETRIES_PER_ADMISSION,
    RETRIES_PER_PASS,
    SkippedRequests,
)

WAITING = 300


@pytest.fixture
def engine() -> Engine:
    """An engine with one LoRA slot, held by a running request; many requests need it for another adapter."""
    made = Engine(quantum=10_000, room=100, slots=1)
    made.send("holder", 1, lora_id="held")
    assert clients(made.run_pass()) == "holder"
    for number in range(WAITING):
        made.send("crowd", 2, number, lora_id="wanted")
    return made


def test_one_that_finds_no_slot_speaks_for_all_who_want_that_adapter(engine):
    """The others behind it are admitted in that very look, though hundreds had to be passed."""
    engine.send("other", 3, 4, lora_id="held")
    engine.asked = 0

    assert clients(engine.run_pass()) == "other"
    assert engine.asked == 2


def test_from_then_on_a_pass_asks_for_one_of_them(engine):
    engine.run_pass()
    engine.asked = 0

    for _ in range(20):
        engine.send("crowd", 5, 6, lora_id="wanted")
        engine.run_pass()

    assert engine.asked == 20
    assert engine.adapter.truncated_passes == 0


def test_skipped_requests_keep_no_refill_from_others(engine):
    """Clients without a slot keep their credit; clients with a slot spend theirs and are refilled."""
    engine.fair.policy.ledger._quantum = 4
    engine.run_pass()
    rounds = engine.fair.refill_rounds

    for number in range(6):
        engine.send("other", 7, 8, 9, number, lora_id="held")
    engine.run_pass()

    assert engine.fair.refill_rounds > rounds


def test_when_there_is_a_slot_the_oldest_come_first_and_all_come(engine):
    crowd = [req for req in engine.queue if req.client == "crowd"]
    engine.run_pass()
    engine.end(*engine.batch)

    first = engine.run_pass()
    assert len(first) > RETRIES_PER_ADMISSION
    admitted = first
    while len(engine.queue):
        admitted = admitted + engine.run_pass()

    assert admitted[0] is crowd[0]
    assert set(admitted) == set(crowd) and len(admitted) == WAITING


def test_a_pass_skips_no_more_than_so_many():
    engine = Engine(quantum=10_000, room=1000, slots=1)
    engine.send("holder", 1, lora_id="held")
    engine.run_pass()
    for number in range(MAX_SKIPPED_PER_PASS + 5):
        engine.send("crowd", 2, number, lora_id="wanted")
    engine.send("other", 3, 4, lora_id="held")

    assert clients(engine.run_pass()) == ""
    assert engine.adapter.truncated_passes == 1
    assert clients(engine.run_pass()) == "other"


def test_of_many_groups_all_are_tried_in_turn():
    """Groups tried first find no slot for long; other groups are tried all the same."""
    engine = Engine(quantum=10_000, room=1000, slots=1)
    engine.send("holder", 1, lora_id="held")
    engine.run_pass()
    for number in range(2 * (RETRIES_PER_PASS + 1)):
        adapter = number // 2
        engine.send(f"{adapter}", 2, number, lora_id=f"{adapter}")
    engine.run_pass()
    engine.end(*engine.batch)

    passes = [
        engine.run_pass(skip=lambda req: req.lora_id != f"{RETRIES_PER_PASS}") for _ in range(2)
    ]

    assert [clients(run_pass) for run_pass in passes] == ["", f"{RETRIES_PER_PASS}" * 2]


def test_a_skipped_request_that_is_aborted_is_forgotten(engine):
    engine.run_pass()
    gone = [req for req in engine.queue if req.client == "crowd"]
    for req in gone:
        engine.queue.remove(req)
    engine.end(*engine.batch)

    assert engine.run_pass() == []
    assert engine.adapter.live == 0
    assert not engine.adapter._slots.skipped()


def test_a_retracted_request_without_a_slot_is_not_behind_the_crowd(engine):
    """A retracted request's adapter lost its slot meanwhile; the request stays charged."""
    engine.run_pass()
    engine.end(*engine.batch)
    (back,) = engine.run_pass(room=2)
    engine.batch.remove(back)
    engine.queue.append(back)  # as SGLang retracts it
    engine.pinned.add("another")  # the only slot is that one's now

    assert back not in engine.run_pass()
    engine.pinned.clear()

    assert engine.run_pass()[0] is back


def test_a_request_skipped_for_another_reason_is_blocked_for_that_pass_only(engine):
    """A prefetch under way says nothing about others that want the same adapter."""
    waits = engine.send("other", 3, 4, lora_id="held")
    ready = engine.send("other", 3, 5, lora_id="held")

    assert engine.run_pass(skip=lambda req: req is waits) == [ready]
    assert engine.run_pass() == [waits]


def flood_until_another(engine: Engine, crowd: int = 0) -> str:
    """
    Admissions while a client's requests for its adapter overlap without end; another client needs a slot, and
    so many wait for a pinned adapter.
    """
    flood = [engine.send("flood", 1, number, lora_id="a") for number in range(2)]
    engine.run_pass()
    for number in range(crowd):
        engine.send("crowd", 2, number, lora_id="pinned")
    engine.send("other", 9, lora_id="b")
    return admitted_with_another(engine, flood)


def admitted_with_another(engine: Engine, flood: list[Req]) -> str:
    """Return the admissions up to the other request; the flood's running requests go on without end."""
    admitted = ""
    for number in range(30):
        engine.send("flood", 1, 10 + number, lora_id="a")
        engine.through(flood[:])
        engine.end(flood.pop(0))  # one runs on while the next is admitted
        new = engine.run_pass()
        admitted += clients(new)
        flood += new
        if not flood:
            flood += engine.run_pass()
        if "other" in admitted:
            break
    return admitted


def test_a_flood_on_one_adapter_gives_way_after_a_turn():
    """
    An engine with one slot, and a client whose requests for its adapter overlap without end: another's would
    find it taken for ever. After a turn of 40 tokens no request of the flood is taken in until it has run.
    """
    engine = Engine(quantum=10, room=1000, slots=1, tenure_len=40)

    assert "other" in flood_until_another(engine)
    assert engine.adapter.slot_rotations == 1


def test_a_pinned_adapter_keeps_a_slot_from_the_others_and_they_take_turns_all_the_same():
    """
    Two slots, of which one is for a pinned adapter that no one asks for: a flood holds the only other one.
    Counted among those that others could have, it would be free for ever, and no request would give way.
    """
    engine = Engine(quantum=10, room=1000, slots=2, tenure_len=40)
    engine.pinned.add("pinned")

    assert "other" in flood_until_another(engine)
    assert engine.adapter.slot_rotations == 1


def test_who_wants_a_pinned_adapter_is_taken_in_while_others_wait_for_their_turn():
    """A pinned adapter takes no reserved slot; and its service, the most of all, drains no adapter."""
    engine = Engine(quantum=1000, room=1000, slots=2, tenure_len=40)
    engine.pinned.add("pinned")
    engine.send("flood", 1, lora_id="a")
    engine.run_pass()
    engine.send("other", 2, lora_id="b")
    engine.send("rich", *range(10, 90), lora_id="pinned")

    for _ in range(30):
        engine.through(engine.run_pass())
    assert clients(engine.batch) == "floodrich"
    assert engine.adapter.slot_rotations == 0

    engine.through([engine.batch[0]] * 50)
    for _ in range(20):
        engine.through([engine.batch[0]])
        engine.run_pass()
    assert engine.adapter.slot_rotations == 1
    engine.send("flood", 3, lora_id="a")
    engine.send("rich", 4, lora_id="pinned")
    assert clients(engine.run_pass()) == "rich"


def test_no_slot_is_kept_for_a_pinned_adapter_that_requests_always_wait_for():
    """
    The model holds a slot: the other slot is the other adapter's, though it received more than waiting
    ones.
    """
    engine = Engine(quantum=10, room=6, slots=2, tenure_len=40)
    engine.pinned.add("pinned")

    assert "other" in flood_until_another(engine, crowd=200)
    assert any(req.lora_id == "pinned" for req in engine.queue)


def test_a_flood_gives_way_to_a_retracted_request_too():
    """A retracted request's adapter lost the only slot meanwhile."""
    engine = Engine(quantum=10, room=1000, slots=1, tenure_len=40)
    other = engine.send("other", 9, lora_id="b")
    engine.run_pass()
    engine.batch.remove(other)
    engine.queue.append(other)
    flood = [engine.send("flood", 1, number, lora_id="a") for number in range(2)]
    assert engine.run_pass(skip=lambda req: req is other) == flood

    assert "other" in admitted_with_another(engine, flood)


def test_more_of_those_with_a_slot_are_tried_a_few_at_a_time_and_who_ran_before_first():
    skipped, taker = SkippedRequests(), Taker("a", "x")
    new, paid = (
        [
            Request(id=f"{is_paid}{n}", client="a", prompt=(), input_len=1, max_tokens=1, order=n)
            for n in range(RETRIES_PER_ADMISSION - 2)
        ]
        for is_paid in (False, True)
    )
    for request in new:
        skipped.add(request.id, taker, request, is_preempted=False)
    for request in paid:
        skipped.add(request.id, taker, request, is_preempted=True)

    assert skipped.take_like(taker) == paid + new[:2]
    assert skipped.take_like(taker) == new[2:]
    assert len(skipped) == 0


def test_no_request_gives_way_to_one_that_was_removed():
    """The only request that waited for a slot was aborted."""
    engine = Engine(quantum=1000, room=1000, slots=1, tenure_len=40)
    holder = engine.send("flood", 1, lora_id="a")
    engine.run_pass()
    gone = engine.send("other", 2, lora_id="b")
    engine.run_pass()
    engine.queue.remove(gone)

    for _ in range(60):
        engine.through([holder])
        engine.run_pass()

    assert engine.adapter.slot_rotations == 0


def passes_of_a_tenure(*, is_retracted: bool) -> int:
    """Of an adapter with two running requests, of which the long one may be retracted meanwhile."""
    engine = Engine(quantum=1000, room=1000, slots=1, tenure_len=150)
    long = engine.send("flood", *range(60), lora_id="a")
    engine.send("flood", 98, lora_id="a")
    engine.run_pass()
    engine.send("other", 99, lora_id="b")
    engine.run_pass()
    passes = 0
    while not engine.adapter.slot_rotations:
        passes += 1
        if is_retracted and passes == 5:
            engine.cache.evict(1000)
            engine.batch.remove(long)
            long.output_ids.clear()
            engine.queue.append(long)
            assert engine.run_pass() == [long]
        engine.through(engine.batch)
        engine.run_pass()
    return passes


def test_what_is_computed_again_is_no_part_of_a_turn():
    """Nor are the outputs that were dropped: five of one request, which it has to emit once more."""
    plain, retracted = (passes_of_a_tenure(is_retracted=each) for each in (False, True))

    assert plain < retracted <= plain + 5


def test_the_running_requests_are_those_that_sglang_counts_in_this_pass():
    """The scheduler's own batch may be older than the one that SGLang is about to fill."""
    engine = Engine(quantum=1000, room=1000, slots=1, tenure_len=40)
    engine.send("flood", 1, lora_id="a")
    engine.run_pass()
    engine.send("other", 2, lora_id="b")
    engine.run_pass()
    asked: list[object] = []
    engine.running_requests = lambda batch: asked.append(batch) or batch
    of_this_pass = engine.batch[:]

    engine.adapter.begin_pass(engine.queue, of_this_pass)

    assert asked and all(batch is of_this_pass for batch in asked)


@pytest.mark.parametrize("passes", range(4))
def test_a_request_with_a_slot_kept_for_it_is_tried_though_more_wait_than_a_pass_tries(passes):
    """Else the slot would stand idle until its turn to be tried came round."""
    engine = Engine(quantum=1000, room=1000, slots=1, tenure_len=40)
    flood = engine.send("flood", 1, lora_id="a")
    engine.run_pass()
    engine.send("other", 3, lora_id="b")
    for number in range(3 * RETRIES_PER_PASS):
        engine.send("many", 2, number, lora_id=f"{number}")
    engine.run_pass()
    for _ in range(40):
        engine.through([flood])
        engine.run_pass()
    assert engine.adapter.slot_rotations == 1
    for _ in range(passes):
        engine.run_pass()
    engine.end(flood)

    assert clients(engine.run_pass()) == "other"

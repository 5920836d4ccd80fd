"""The plug-in's records compared with SGLang's lists, for every event of a request."""

import random
from collections.abc import Callable

import pytest
from tests.unit.engines.sglang.sglang_loop import Engine, Req

from fairhit.core.request import Request
from fairhit.engines.lora_slots import Taker
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue

STEPS, SEEDS = 150, 20


def differences(engine: Engine) -> list[str]:
    return [*engine.adapter.differences(engine.queue, engine.batch)]


@pytest.fixture
def engine() -> Engine:
    """A running request, a waiting one, and a waiting one without a slot."""
    made = Engine(quantum=1000, room=1000, slots=1, tenure_len=50)
    made.send("runs", *range(40), lora_id="held")
    made.run_pass()
    made.send("waits", 1, lora_id="wanted")
    made.send("waits", *range(40), lora_id="held")
    made.run_pass()
    assert [req.tokens for req in made.batch] == [[*range(40)]]
    assert differences(made) == []
    return made


def of(engine: Engine, req: Req) -> Request:
    return engine.adapter._tracked[req].ours


FAULTS: dict[str, Callable[[Engine], object]] = {
    "waits and has no record": lambda engine: list.append(engine.queue, Req("new", [1])),
    "runs and has no record": lambda engine: engine.batch.append(Req("new", [1])),
    "has ended and has a record": lambda engine: engine.batch.clear(),
    "waits, and is running in the core": lambda engine: list.append(
        engine.queue, engine.batch.pop()
    ),
    "runs, and is blocked in the core": lambda engine: engine.batch.append(list.pop(engine.queue)),
    "in the core or have a record": lambda engine: engine.adapter._tracked.pop(engine.batch.pop()),
    "counts as being prefilled": lambda engine: engine.adapter._followers.on_prefill(
        of(engine, engine.queue[0])
    ),
    "counts as a follower": lambda engine: engine.adapter._followers._deferred.update(
        {of(engine, engine.batch[0]): 1}
    ),
    "are blocked or skipped": lambda engine: engine.adapter._slots._skipped.remove(
        of(engine, engine.queue[0]).id
    ),
    "waits for a slot as": lambda engine: engine.adapter._slots._rotation.add_waiting(
        "ghost", Taker("gone", "wanted")
    ),
}


@pytest.mark.parametrize("said", FAULTS)
def test_each_kind_of_fault_is_found(engine, said):
    FAULTS[said](engine)

    assert said in "; ".join(differences(engine))


def test_a_client_that_is_forgotten_while_its_request_follows_another_leaves_no_ghost():
    engine = Engine(quantum=1000, room=1000, slots=2, tenure_len=50, max_clients=1)
    leader = engine.send("a", *range(40), 100, lora_id="held")
    engine.run_pass()
    engine.send("b", *range(40), 101, lora_id="wanted")
    engine.run_pass()
    engine.end(leader)

    assert [req.tokens[-1] for req in engine.run_pass()] == [101]


def test_whatever_happens_to_requests_no_record_outlives_them():
    """
    Arrivals into a full queue, refusals, chunks, outputs, ends, aborts, retractions, pauses that retract
    all, new lists, a pinned adapter, more clients than counters: after each the records are SGLang's lists.
    """
    for seed in range(SEEDS):
        rng = random.Random(seed)
        engine = Engine(quantum=20, room=60, slots=3, tenure_len=30, max_clients=3, most_waiting=8)
        for _ in range(STEPS):
            happen(engine, rng)
            assert differences(engine) == [], f"seed {seed}"
        engine.queue.clear()
        engine.end(*engine.batch[:])
        assert (engine.adapter.live, differences(engine)) == (0, []), f"seed {seed}"


def happen(engine: Engine, rng: random.Random) -> None:
    """Do a random thing that SGLang does."""
    what = rng.choice("ssssllllooeaqrn")
    running = [req for req in engine.batch if rng.random() < 0.5]
    if what == "s":
        tokens = *range(rng.choice((1, 40))), rng.randrange(3)
        engine.send(
            f"client {rng.randrange(5)}",
            *tokens,
            lora_id=rng.choice((None, "x", "y", "z")),
            to_finish=rng.choice((None, None, None, "refused")),
        )
    elif what == "l":
        engine.run_pass(skip=lambda _: rng.random() < 0.1)
    elif what == "o":
        engine.through(running)
    elif what == "e":
        engine.end(*running)
    elif what == "a" and running:
        engine.abort(running[0])
    elif what == "q" and engine.queue:
        engine.queue.pop(rng.randrange(len(engine.queue)))
    elif what == "r":
        retracted = engine.batch[:] if rng.random() < 0.3 else running
        for req in retracted:
            engine.batch.remove(req)
            engine.enqueue(req)
    elif what == "n":
        engine.queue = SglangWaitingQueue(
            [req for req in engine.queue if rng.random() < 0.9], engine.adapter
        )

"""[32] Queueing at the gateway, any order of events: no request lost, no engine idle, no client starved."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.block_set import BlockCache
from fairhit.dispatch import QUEUE_SCHEDULERS, QueueRules, TicketState
from fairhit.errors import NoEngine, NotFound, QueueFull
from fairhit.policies.dlpm import DLPM
from fairhit.routers.sticky import Sticky
from tests.properties.engines import PROMPT, TEXT, World

QUEUE_SIZE = 12


def ask(world: World, rng: random.Random) -> None:
    """A request comes; it is refused only for reasons."""
    client, model = rng.choice("aaaabc"), rng.choice([None, None, "m", "n"])
    waiting = world.dispatcher.ledger.waiting(client)
    try:
        key = rng.choice(["", "k1", "k2", "k3"])  # nothing to a router that is not sticky
        world.ask(
            client, output_len=rng.randint(1, 9), topic=rng.randrange(4), model=model, key=key
        )
    except QueueFull:
        assert waiting >= QUEUE_SIZE
    except (NoEngine, NotFound):
        pass


class Gate:
    """Lets a few through to an engine that is tried."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def lets_through(self) -> bool:
        return self.left > 0

    def sent(self) -> None:
        self.left -= 1
        assert self.left >= 0, "more are sent than are let through"


def change(world: World, rng: random.Random, what: str) -> None:
    """Something else happens than a request and its answer."""
    dispatcher, name = world.dispatcher, rng.choice(list(world.engines))
    is_up = dispatcher.engines[name].up
    if what == "look" and is_up:
        world.report(name)
    elif what == "blind":
        dispatcher.unobserved(name, "it is blind")
    elif what == "down":
        world.down(name)
    elif what == "up":
        world.up(name, *rng.choice([(), ("m",), ("m", "n")]))
    elif what == "take":
        gate = Gate(rng.randint(1, 3)) if rng.random() < 0.3 else None
        dispatcher.set_accepting(name, accepts=rng.random() < 0.7, gate=gate)
    elif what == "switch":
        dispatcher.set_scheduler(rng.choice(QUEUE_SCHEDULERS))


RARE = ["look", "blind", "leave", "fail", "down", "up", "take", "switch"]


def one_event(world: World, rng: random.Random) -> None:
    """Something happens."""
    open_tickets = world.open_tickets()
    what = rng.choices(["ask", "step", *RARE], [40, 30, 8, 2, 4, 2, 1, 3, 2, 1])[0]
    if what == "ask":
        ask(world, rng)
    elif what == "step":
        name = rng.choice(list(world.engines))
        if world.dispatcher.engines[name].up:
            world.step(name)
    elif what == "leave" and open_tickets:
        world.leave(rng.choice(open_tickets))
    elif what == "fail":
        sent = [ticket for ticket in open_tickets if ticket.state is not TicketState.QUEUED]
        if sent:
            world.fail(rng.choice(sent))
    else:
        change(world, rng, what)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_every_ticket_ends_once_and_no_engine_idles_while_one_waits_for_it(seed: int) -> None:
    rng = random.Random(seed)
    rules = QueueRules(
        scheduler=rng.choice(QUEUE_SCHEDULERS),
        queue_size=QUEUE_SIZE,
        max_engine_requests=rng.choice([None, None, 1, 3]),
    )
    slots = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    limit = rng.choice([None, None, 1, 2, 5])
    router = rng.choice([None, None, Sticky(max_keys=2)])
    world = World(
        *slots, rules=rules, capacity=rng.choice([3, 20, 9999]), max_sent=limit, router=router,
        text_len=rng.choice([TEXT, 2 * TEXT]),
    )  # fmt: skip
    for _ in range(rng.randint(20, 200)):
        one_event(world, rng)
        if limit is not None and rng.random() < 0.02:  # a reload
            limit = rng.choice([1, 2, 5])
            world.dispatcher.change(max_in_flight=10**6, weights=None, max_sent=limit)
        world.check()
    for name in world.engines:
        world.up(name)
        world.dispatcher.set_accepting(name, accepts=True)
    world.check()
    world.finish(rng)

    assert set(world.ends) == set(world.outputs)
    assert set(world.ends.values()) <= {1}
    assert not len(world.dispatcher.queue)
    for worker in world.dispatcher.engines.values():
        assert not worker.limit.in_flight
    assert not any(list(lane.scheduler) for lane in world.dispatcher.queue.lanes)


LONGEST = 30  # outputs
QUANTUM = 400


def gap(
    world: World,
    rng: random.Random,
    *,
    steps: int,
    lengths: tuple[int, int],
    leaves: bool = False,
) -> int:
    """The largest difference in service between two clients over any part of the run.

    Both always have six requests waiting. One's prompts share a prefix, so that they cost half as much;
    if it `leaves`, it gives up each of its answers when all of it but the last output is computed.
    """
    served, ledger = world.served, world.dispatcher.ledger
    differences = []
    for _ in range(steps):
        for client, longest in zip("ab", lengths, strict=True):
            while ledger.waiting(client) < 6:
                topic = 0 if client == "a" else world.number
                world.ask(client, output_len=rng.randint(1, longest), topic=topic)
        for name in world.engines:
            world.step(name)
            if rng.random() < 0.3:
                world.report(name)
        for asked in world.asked() if leaves else ():
            if asked.ticket.request.client == "a" and asked.emitted and asked.left == 1:
                world.leave(asked.ticket)
        world.check()
        differences.append(served["a"] - served["b"])
    return max(differences) - min(differences)


def most_in_flight(world: World) -> int:
    return sum(worker.peaks.in_flight for worker in world.dispatcher.engines.values())


def bound(world: World, quantum: int = QUANTUM) -> int:
    """2 (U + Q): what is in flight, started or not, is decided, and U is all of it at its longest."""
    return 2 * (most_in_flight(world) * (PROMPT + 2 * LONGEST) + quantum)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 6),
    streams=st.sampled_from([True, False, None]),
    lengths=st.tuples(st.integers(1, LONGEST), st.integers(1, LONGEST)),
    max_sent=st.sampled_from([None, None, 1, 3]),
)
def test_two_who_always_wait_for_one_engine_get_the_same_within_the_bound(
    seed: int, slots: int, streams: bool | None, lengths: tuple[int, int], max_sent: int | None
) -> None:
    """Also where a limit on all requests is what they wait for."""
    world = World(slots, rules=QueueRules(quantum=QUANTUM), streams=streams, max_sent=max_sent)

    assert gap(world, random.Random(seed), steps=150, lengths=lengths) <= bound(world)


@pytest.mark.parametrize(("name", "keeps"), [("dlpm", True), ("fcfs", False), ("lpm", False)])
def test_without_fair_shares_the_same_traffic_breaks_the_bound(name: str, keeps: bool) -> None:
    """Or the bound would say nothing: one of them asks for ten times as much."""
    world = World(4, rules=QueueRules(scheduler=name), streams=True)
    seen = gap(world, random.Random(0), steps=1200, lengths=(LONGEST, 1))

    assert (seen <= bound(world)) == keeps, (seen, bound(world))


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(2, 6),
    streams=st.booleans(),
    length=st.integers(LONGEST // 2, LONGEST),
)
def test_who_leaves_just_before_each_answer_gets_no_more_than_its_share(
    seed: int, slots: int, streams: bool, length: int
) -> None:
    """An answer in one piece shows no output before it is complete; the engine has computed it all the
    same. Were it given back, the other client would get nothing, the more so the larger the quantum.
    """
    world = World(slots, rules=QueueRules(quantum=10 * QUANTUM), streams=streams)
    lengths = (LONGEST, length)
    seen = gap(world, random.Random(seed), steps=800, lengths=lengths, leaves=True)

    assert seen <= bound(world, 10 * QUANTUM)


def test_a_flood_does_not_keep_the_other_waiting_behind_it() -> None:
    """One engine with four slots; a hundred requests wait when the light tenant's first one arrives.

    It waits for what the other's quantum still buys, and for what is in the engine's queue.
    """
    world = World(4, rules=QueueRules(quantum=200), streams=True)
    for _ in range(100):
        world.ask("flood", output_len=10, topic=0)
    for _ in range(30):
        world.step("w0")
        world.report("w0")
    before = world.dispatcher.ledger.waiting("flood")
    light = world.ask("light", output_len=10, topic=1)
    while light.state is not TicketState.STARTED:
        world.step("w0")

    assert before - world.dispatcher.ledger.waiting("flood") <= 4


def test_an_idle_engine_takes_what_waits_for_another() -> None:
    """All requests of a topic match one engine; the other one is not left idle for that."""
    world = World(2, 2, rules=QueueRules(), streams=True)
    tickets = [world.ask("a", output_len=50, topic=0) for _ in range(40)]
    for _ in range(10):
        for name in world.engines:
            world.step(name)
            world.report(name)
        world.check()

    assert {ticket.worker for ticket in tickets if ticket.state is TicketState.STARTED} == {
        "w0",
        "w1",
    }
    assert all(len(engine.running) == 2 for engine in world.engines.values())


def test_only_the_client_over_its_bound_is_refused() -> None:
    world = World(1, rules=QueueRules(queue_size=5), streams=True)
    while world.dispatcher.ledger.waiting("a") < 5:
        world.ask("a", output_len=5, topic=0)
    with pytest.raises(QueueFull):
        world.ask("a", output_len=5, topic=0)
    for client in "bcd":
        world.ask(client, output_len=5, topic=0)


def test_debts_moved_with_a_request_leave_nothing_behind() -> None:
    """Everything that fails is given back where it was charged: at the router and in the queue."""
    world = World(1, 1, rules=QueueRules(), streams=True)
    for _ in range(6):
        world.ask("a", output_len=5, topic=world.number)
    world.down("w0")
    world.down("w1")
    for name in world.engines:
        world.up(name)
    ledger, queue = world.dispatcher.ledger, world.dispatcher.queue

    assert [ledger.received("a", name) for name in world.engines] == [0, 0]
    # One quantum from the first refill, from which nothing is missing.
    quantum = DLPM(cache=BlockCache(block_size=1)).ledger.quantum_of("a")
    assert queue.credit("a") == quantum

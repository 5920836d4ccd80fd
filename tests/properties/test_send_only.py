"""[40] A request that arrives while none waits is sent in one step, which does what queueing it would do."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.dispatch import QUEUE_SCHEDULERS, QueueRules, Ticket
from fairhit.dispatch.queue import GatewayQueue
from tests.properties.engines import World
from tests.properties.test_queueing import one_event


def send_by_queueing(queue: GatewayQueue, ticket: Ticket, name: str, matched_len: int) -> None:
    """Replace `GatewayQueue._send_only`: the ticket waits, is assigned, proposed and admitted."""
    queue._enqueue(ticket)
    queue._assign(ticket, name, matched_len)
    queue.run()


def state_of(world: World) -> list[Any]:
    """Return all that later decisions depend on, and what each ticket and client received."""
    dispatcher, clients = world.dispatcher, "abc"
    queue, ledger = dispatcher.queue, dispatcher.ledger
    state: list[Any] = [dict(ledger.waiting_by_client()), list(queue._with_capacity), queue.sent]
    state += [repr(account) for account in ledger.accounts()]
    for ticket in world.outputs:
        state.append((ticket.worker, ticket.state, ticket.matched_len, ticket.final_len))
    for name, engine in dispatcher.engines.items():
        if engine.up:
            router = dispatcher.router
            state.append([router.deficit(client, name) for client in clients])
            state.append(router.load.tokens(name))
        if engine.queue is None:
            continue
        scheduler, limit = engine.queue.scheduler, engine.queue.limit
        state.append((dict(engine.queue.view._copies), list(engine.queue._tickets)))
        state.append((limit.in_flight, limit.size, dict(limit._unseen), limit._streams))
        state.append(limit._short)
        for client in clients:
            state.append((scheduler.credit(client), scheduler.waiting(client)))
        state.append((scheduler._pass_number, scheduler.refill_rounds, scheduler._batch))
        state.append({one.request.id: one.extend_len for one in scheduler._records.values()})
    return state


def play(seed: int, events: int) -> list[Any]:
    """Return the state after each of so many events."""
    rng = random.Random(seed)
    rules = QueueRules(
        scheduler=rng.choice(QUEUE_SCHEDULERS),
        max_assigned_per_client=rng.randint(1, 3),
        max_engine_requests=rng.choice([None, 2, 5]),
    )
    world = World(*[rng.randint(1, 4) for _ in range(rng.randint(1, 3))], rules=rules)
    states = []
    for _ in range(events):
        one_event(world, rng)
        states.append(repr(state_of(world)))
    return states


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), events=st.integers(1, 80))
def test_one_step_leaves_what_queueing_leaves(seed: int, events: int) -> None:
    states = play(seed, events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatewayQueue, "_send_only", send_by_queueing)
        assert play(seed, events) == states


def test_a_prompt_that_was_cached_before_the_gateway_queued_is_charged_the_same() -> None:
    """The queue of an engine begins with an empty view of its cache; the index knew the cache before."""
    charged = []
    for send in (GatewayQueue._send_only, send_by_queueing):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GatewayQueue, "_send_only", send)
            world = World(2, rules=QueueRules(), streams=True)
            world.dispatcher.set_queueing("w0", queues=False)
            world.ask("a", output_len=3, topic=0)
            world.dispatcher.set_queueing("w0", queues=True)
            charged.append(world.ask("a", output_len=3, topic=0).extend_len)

    assert charged == [500, 500]


def test_one_step_is_taken_while_no_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the comparison would compare queueing with queueing."""
    sent: list[str] = []
    send_only = GatewayQueue._send_only

    def record(queue: GatewayQueue, ticket: Ticket, name: str, matched_len: int) -> None:
        sent.append(name)
        send_only(queue, ticket, name, matched_len)

    monkeypatch.setattr(GatewayQueue, "_send_only", record)
    world = World(2, 2, rules=QueueRules(max_engine_requests=2), streams=True)
    for number in range(6):
        world.ask("a", output_len=3, topic=number)

    assert sorted(sent) == ["w0", "w0", "w1", "w1"]

"""[34] A request that comes while nobody waits and has room: the one step is what the long way would do."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.dispatch import QUEUE_SCHEDULERS, QueueRules, Ticket
from fairhit.dispatch.queue import GatewayQueue
from tests.properties.engines import World
from tests.properties.test_queueing import one_event


def the_long_way(queueing: GatewayQueue, ticket: Ticket, name: str, matched_len: int) -> None:
    """Instead of `GatewayQueue._send_lone`: it waits, is bound, proposed and admitted."""
    queueing._wait(ticket)
    queueing._bind(ticket, name, matched_len)
    queueing.run()


def told(world: World) -> list[Any]:
    """All that decides what happens next, and what each ticket and client got."""
    dispatcher, clients = world.dispatcher, "abc"
    state: list[Any] = [dispatcher.queueing._counts, list(dispatcher.queueing._roomy)]
    for ticket in world.outputs:
        state.append((ticket.worker, ticket.state, ticket.matched_len, ticket.settled_len))
    for name, worker in dispatcher.workers.items():
        if worker.up:
            router = dispatcher.router
            state.append([router.deficit(client, name) for client in clients])
            state.append(router.outstanding(name))
        if worker.queue is None:
            continue
        scheduler, window = worker.queue.scheduler, worker.queue.window
        state.append((dict(worker.queue.view._copies), worker.queue._tickets.keys()))
        state.append((window.in_flight, window.size, dict(window._unseen), window._streams))
        for client in clients:
            service = scheduler.service(client)
            state.append((scheduler.credit(client), scheduler.waiting(client), service))
        state.append((scheduler._pass_number, scheduler.refill_rounds, scheduler._batch))
        state.append({seat.request.id: seat.extend_len for seat in scheduler._records.values()})
    return state


def played(seed: int, events: int) -> list[Any]:
    """What is told after each of so many events."""
    rng = random.Random(seed)
    rules = QueueRules(
        scheduler=rng.choice(QUEUE_SCHEDULERS),
        places=rng.randint(1, 3),
        window=rng.choice([None, 2, 5]),
    )
    world = World(*[rng.randint(1, 4) for _ in range(rng.randint(1, 3))], rules=rules)
    told_so_far = []
    for _ in range(events):
        one_event(world, rng)
        told_so_far.append(repr(told(world)))
    return told_so_far


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), events=st.integers(1, 80))
def test_the_one_step_and_the_long_way_leave_the_same(seed: int, events: int) -> None:
    taken = played(seed, events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatewayQueue, "_send_lone", the_long_way)
        assert played(seed, events) == taken


def test_what_was_cached_before_the_gateway_queued_is_charged_all_the_same() -> None:
    """The queue of an engine begins with an empty view of its cache, which the index knows longer."""
    charged = []
    for one_step in (GatewayQueue._send_lone, the_long_way):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GatewayQueue, "_send_lone", one_step)
            world = World(2, rules=QueueRules(), streams=True)
            world.dispatcher.set_queueing("w0", queues=False)
            world.ask("a", output_len=3, topic=0)
            world.dispatcher.set_queueing("w0", queues=True)
            charged.append(world.ask("a", output_len=3, topic=0).extend_len)

    assert charged == [500, 500]


def test_the_one_step_is_taken_wherever_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the comparison would say nothing."""
    lone: list[str] = []
    one_step = GatewayQueue._send_lone

    def seen(queueing: GatewayQueue, ticket: Ticket, name: str, matched_len: int) -> None:
        lone.append(name)
        one_step(queueing, ticket, name, matched_len)

    monkeypatch.setattr(GatewayQueue, "_send_lone", seen)
    world = World(2, 2, rules=QueueRules(window=2), streams=True)
    for number in range(6):
        world.ask("a", output_len=3, topic=number)

    assert sorted(lone) == ["w0", "w0", "w1", "w1"]

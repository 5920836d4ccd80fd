"""Tickets that not every engine may take: lanes, one account for all of them, and what is lent."""

import random

import pytest
from tests.properties.engines import PROMPT, World

from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.dispatch import QueueRules, Ticket, TicketState
from fairhit.routers.sticky import Sticky

FAIR = {"scheduler": "fair", "overdraft": 0, "cost": TokenCost()}
KINDS = {"dlpm": {"scheduler": "dlpm"}, "fair": FAIR}


def world_of(*models: tuple[str, ...], kind: str = "dlpm", sticky: bool = False) -> World:
    """An engine of one slot for each tuple of models, and room for one request in each."""
    rules = QueueRules(quantum=PROMPT, max_engine_requests=1, **KINDS[kind])
    world = World(
        *[1] * len(models), rules=rules, streams=True, router=Sticky() if sticky else None
    )
    for name, served in zip(world.engines, models, strict=True):
        world.up(name, *served)
    return world


def ask(world: World, client: str, model: str | None, *, output_len: int = 3) -> Ticket:
    return world.ask(client, output_len=output_len, topic=world.number, model=model)


def answered(world: World, engine: str) -> str:
    """Step the engine until a request of it ends; return the client."""
    before = set(world.ends)
    while set(world.ends) == before:
        world.step(engine)
        world.check()
    (ticket,) = set(world.ends) - before
    return ticket.request.client


def test_requests_for_the_same_engines_wait_in_one_lane() -> None:
    world = world_of(("m",), ("m", "n"), ("m", "n"))
    tickets = {name: [ask(world, "a", name) for _ in range(6)] for name in ("m", "n")}
    lanes = {
        name: {each.lane for each in line if not each.worker} for name, line in tickets.items()
    }

    assert [len(found) for found in lanes.values()] == [1, 1]
    assert lanes["m"] != lanes["n"]
    assert world.dispatcher.queue.lanes.waiting == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_takes_of_one_model_counts_where_it_waits_for_another(kind: str) -> None:
    """Client b waits for the engine of `n` while client a has that of `m` for itself."""
    world = world_of(("m",), ("n",), kind=kind)
    ask(world, "c", "n")
    for _ in range(4):
        ask(world, "b", "n")
    for _ in range(8):
        ask(world, "a", "m")
    assert [answered(world, "w0") for _ in range(8)] == ["a"] * 8
    for _ in range(4):
        ask(world, "a", "n")

    assert [answered(world, "w1") for _ in range(5)] == ["c", "b", "b", "b", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_is_not_idle_for_a_client_that_waits_for_another(kind: str) -> None:
    """Client b is due and waits for the engine of `n`, which is busy for long; client a is in debt."""
    world = world_of(("m",), ("n",), kind=kind)
    ask(world, "b", "n", output_len=1000)
    ask(world, "b", "n")
    for _ in range(8):
        ask(world, "a", "m")
    assert [answered(world, "w0") for _ in range(8)] == ["a"] * 8
    assert world.dispatcher.queue.credit("b") > 0 > world.dispatcher.queue.credit("a")


def test_of_several_lanes_the_one_whose_client_has_most_credit_is_first() -> None:
    """An engine of three models, each of which has other engines, too."""
    world = world_of(("k", "m", "n"), ("m",), ("k",))
    for model in "nmk":  # all engines are busy
        ask(world, "x", model)
    deficits = world.dispatcher.queue.deficits
    assert deficits is not None
    for client, model, debt in (("a", "m", 3), ("b", "n", 1), ("c", "k", 2)):
        ask(world, client, model)
        deficits.charge(client, debt * UNITS_PER_TOKEN)

    assert [answered(world, "w0") for _ in range(4)][1:] == ["b", "c", "a"]


def test_more_lanes_than_are_examined_at_a_time_are_all_served() -> None:
    """One engine has forty models, each of which has a busy engine, too."""
    models = tuple(f"m{number}" for number in range(40))
    world = world_of(models, *[(model, "other") for model in models])
    for _ in models:
        ask(world, "busy", "other", output_len=10_000)
    busy = ask(world, "busy", "m0", output_len=1)
    tickets = [ask(world, "a", model, output_len=1) for model in models]
    assert world.dispatcher.queue.lanes.waiting == 40
    for _ in range(100):
        world.step("w0")

    assert {each.state for each in (busy, *tickets)} == {TicketState.ENDED}


def test_lanes_that_are_not_used_any_more_are_dropped_with_all_that_they_followed() -> None:
    world = world_of(("m", "n"), ("m", "n"), ("n",))
    for model in ("m", "n"):
        for _ in range(6):
            ask(world, "a", model)
    view = world.dispatcher.engines["w0"].view
    assert view is not None and len(view._listeners) == 2
    world.finish(random.Random(0))
    for name in ("w1", "w2"):
        world.down(name)

    queue = world.dispatcher.queue
    assert [lane.engines for lane in queue.lanes] == []
    assert view._listeners == []


def test_sessions_keep_few_lanes() -> None:
    """Lanes are sets of engines: as many sessions as one likes have one lane an engine."""
    world = world_of((), (), (), sticky=True)
    for number in range(30):
        world.ask("a", output_len=1, topic=number, key=f"k{number}")

    assert len(list(world.dispatcher.queue.lanes)) <= 4


def test_a_policy_without_shared_deficits_keeps_accounts_for_each_lane() -> None:
    rules = QueueRules(scheduler="vtc", max_engine_requests=1)
    world = World(1, 1, rules=rules, streams=True)
    for name, model in (("w0", "m"), ("w1", "n")):
        world.up(name, model)
    for model in "mn":
        for client in "ab":
            for _ in range(3):
                ask(world, client, model)

    assert world.dispatcher.queue.deficits is None
    for engine in world.engines:
        assert sorted(answered(world, engine) for _ in range(4)) == ["a", "a", "b", "b"]
    world.finish(random.Random(0))

"""What waits, as an engine with room sees it: a few clients for a few models at a time, all in turn."""

from fairhit.core.request import Request
from fairhit.dispatch import Ticket
from fairhit.dispatch.ticket_queues import _LOOKS, _MODELS, TicketQueues

MANY = 10 * _MODELS


class Engine:
    """It serves these, None: any; and how often that was asked."""

    def __init__(self, *models: str) -> None:
        self.models = frozenset(models) or None
        self.asked = 0

    def serves(self, model: str | None) -> bool:
        self.asked += 1
        return model is None or self.models is None or model in self.models


def ticket(client: str, model: str, order: int) -> Ticket:
    request = Request(
        id=str(order), client=client, prompt=(), input_len=1, max_tokens=1, order=order
    )
    return Ticket(request, model, 0)


def full(clients: int = 1) -> tuple[TicketQueues, list[Ticket]]:
    """A room where as many clients wait for each of many models."""
    room, tickets = TicketQueues(), []
    for number in range(MANY * clients):
        tickets.append(ticket(f"c{number % clients}", f"m{number // clients}", number))
        room.add(tickets[-1])
    return room, tickets


def test_what_is_looked_at_does_not_grow_with_the_models_that_callers_name() -> None:
    room, _ = full(2 * _LOOKS)
    engine = Engine()

    assert len(room.offers("w", engine)) == _MODELS * _LOOKS
    assert engine.asked == _MODELS


def test_every_model_and_client_has_its_turn() -> None:
    room, tickets = full(2 * _LOOKS)
    offered = {each for _ in range(2 * MANY // _MODELS) for each in room.offers("w", Engine())}

    assert offered == set(tickets)


def test_an_engine_is_offered_what_it_serves_wherever_that_stands() -> None:
    room, tickets = full()
    last = tickets[-1]
    assert last.model is not None

    assert room.offers("w", Engine(last.model)) == [last]
    some = {tickets[number].model or "" for number in range(0, MANY, 2)}  # more than are looked at
    assert [each.model in some for each in room.offers("w", Engine(*some))] == [True] * _MODELS


def test_models_that_it_does_not_serve_are_not_looked_through() -> None:
    room, tickets = full()
    engine, anything = Engine("m7", "m3", "unasked"), ticket("a", "", MANY)
    anything.model = None
    room.add(anything)

    assert room.offers("w", engine) == [anything, tickets[3], tickets[7]]
    assert engine.asked == 0


def test_all_that_a_client_waits_for_has_its_turn() -> None:
    room, tickets = full()
    rounds = [room.firsts("c0") for _ in range(MANY // _MODELS)]

    assert {len(each) for each in rounds} == {_MODELS}
    assert {each for found in rounds for each in found} == set(tickets)


def test_of_each_model_the_oldest_is_first_and_nothing_stays_of_those_that_left() -> None:
    room = TicketQueues()
    older, newer, other = ticket("a", "m", 1), ticket("a", "m", 2), ticket("a", "n", 3)
    for each in (older, newer, other):
        room.add(each)
    assert room.firsts("a") == [older, other]
    room.remove(older)
    assert room.firsts("a") == [newer, other]
    room.remove(newer)
    room.remove(other)

    assert (room.firsts("a"), len(room), list(room)) == ([], 0, [])
    assert not room._rings and not room._lines

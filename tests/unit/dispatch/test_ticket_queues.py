"""Candidates for an engine with capacity: a few clients for a few models at a time, in rotation."""

from fairhit.core.request import Request
from fairhit.dispatch import Ticket
from fairhit.dispatch.ticket_queues import _CLIENTS_EXAMINED, _MODELS_EXAMINED, TicketQueues

MANY = 10 * _MODELS_EXAMINED


class Engine:
    """An engine that serves `models`, none for any, and counts the questions."""

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
    """Return queues where `clients` clients wait for each of many models."""
    queues, tickets = TicketQueues(), []
    for number in range(MANY * clients):
        tickets.append(ticket(f"c{number % clients}", f"m{number // clients}", number))
        queues.add(tickets[-1])
    return queues, tickets


def test_examined_tickets_do_not_grow_with_the_models_that_clients_name() -> None:
    queues, _ = full(2 * _CLIENTS_EXAMINED)
    engine = Engine()

    assert len(queues.candidates("w", engine)) == _MODELS_EXAMINED * _CLIENTS_EXAMINED
    assert engine.asked == _MODELS_EXAMINED


def test_every_model_and_client_is_a_candidate_in_rotation() -> None:
    queues, tickets = full(2 * _CLIENTS_EXAMINED)
    offered = {
        each
        for _ in range(2 * MANY // _MODELS_EXAMINED)
        for each in queues.candidates("w", Engine())
    }

    assert offered == set(tickets)


def test_tickets_that_an_engine_serves_are_candidates_at_any_position() -> None:
    queues, tickets = full()
    last = tickets[-1]
    assert last.model is not None

    assert queues.candidates("w", Engine(last.model)) == [last]
    some = {tickets[number].model or "" for number in range(0, MANY, 2)}  # more than are examined
    assert [each.model in some for each in queues.candidates("w", Engine(*some))] == [
        True
    ] * _MODELS_EXAMINED


def test_models_that_an_engine_does_not_list_are_not_scanned() -> None:
    queues, tickets = full()
    engine, anything = Engine("m7", "m3", "unasked"), ticket("a", "", MANY)
    anything.model = None
    queues.add(anything)

    assert queues.candidates("w", engine) == [anything, tickets[3], tickets[7]]
    assert engine.asked == 0


def test_all_models_of_a_client_are_examined_in_rotation() -> None:
    queues, tickets = full()
    rounds = [queues.oldest_by_model("c0") for _ in range(MANY // _MODELS_EXAMINED)]

    assert {len(each) for each in rounds} == {_MODELS_EXAMINED}
    assert {each for found in rounds for each in found} == set(tickets)


def test_the_oldest_ticket_of_each_model_is_first_and_removed_tickets_leave_nothing() -> None:
    queues = TicketQueues()
    older, newer, other = ticket("a", "m", 1), ticket("a", "m", 2), ticket("a", "n", 3)
    for each in (older, newer, other):
        queues.add(each)
    assert queues.oldest_by_model("a") == [older, other]
    queues.remove(older)
    assert queues.oldest_by_model("a") == [newer, other]
    queues.remove(newer)
    queues.remove(other)

    assert (queues.oldest_by_model("a"), len(queues), list(queues)) == ([], 0, [])
    assert not queues._rings and not queues._by_client

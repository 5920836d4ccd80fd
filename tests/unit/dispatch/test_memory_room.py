"""What an engine reports of its memory decides whether one more prompt is sent to it."""

import pytest

from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, TicketState, Usage
from fairhit.dispatch.memory_room import MemoryRoom
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex

BLOCK_LEN = 16
# Tokens of a prompt: 60 blocks, the last token of which is always computed.
LONG = 60 * BLOCK_LEN


class Fleet:
    """A dispatcher with engines that answer nothing by themselves; all prompts are counted tokens."""

    def __init__(self, *, engines: int = 1, limit: int | None = None) -> None:
        rules = QueueRules(scheduler="fcfs", max_engine_requests=limit)
        self.dispatcher = Dispatcher(
            router=D2LPM(),
            index=PrecisePrefixIndex(block_len=BLOCK_LEN),
            rules=rules,
            on_ready=lambda _: None,
        )
        self.number = 0
        for number in range(engines):
            self.dispatcher.engine_up(f"w{number}")

    def ask(self, *, shared: int = 0, topic: int = 0) -> Ticket:
        """Ask with a prompt of 60 blocks, of which `shared` are those of others on the topic."""
        self.number += 1
        first = [1000 * topic + block for block in range(shared)]
        own = [10**6 * self.number + block for block in range(60 - shared)]
        request = Request(
            id=str(self.number), client="a", prompt=(*first, *own), input_len=LONG,
            max_tokens=100, order=self.number,
        )  # fmt: skip
        return self.dispatcher.arrive(request, model=None, text_len=0, streams=True)

    def report(
        self, free: int | None, *, running: int = 1, waiting: int = 0, engine: str = "w0"
    ) -> None:
        self.dispatcher.observed(engine, running=running, waiting=waiting, free_len=free)

    def finish(self, ticket: Ticket) -> None:
        if ticket.state is TicketState.WAITING:
            self.dispatcher.started(ticket)
        self.dispatcher.finished(ticket, Usage(LONG, 1, ticket.matched_len), ran_us=1)


def is_sent(ticket: Ticket) -> bool:
    return bool(ticket.worker)


def test_a_prompt_that_does_not_fit_waits_until_memory_is_returned() -> None:
    fleet = Fleet()
    first = fleet.ask()
    fleet.dispatcher.started(first)
    fleet.report(LONG - 1)
    second = fleet.ask()
    assert not is_sent(second)

    fleet.finish(first)  # what it took is free, before the engine says so
    assert is_sent(second)


def test_a_cached_prompt_is_sent_where_others_do_not_fit() -> None:
    """Ten of its sixty blocks are its own: 160 tokens."""
    fleet = Fleet()
    first = fleet.ask(shared=50, topic=1)
    fleet.dispatcher.started(first)
    fleet.report(200)

    assert is_sent(fleet.ask(shared=50, topic=1))
    assert not is_sent(fleet.ask(shared=50, topic=1)), "40 tokens are left"


def test_an_engine_without_requests_is_sent_one_whatever_it_reports() -> None:
    fleet = Fleet()
    fleet.report(0, running=0)

    assert is_sent(fleet.ask())
    assert not is_sent(fleet.ask())


def test_an_engine_that_reports_no_memory_is_limited_by_its_requests() -> None:
    fleet = Fleet()
    fleet.report(0, running=0)
    fleet.report(None, running=0)
    assert all(is_sent(fleet.ask()) for _ in range(4))

    fleet = Fleet()
    first = fleet.ask()
    fleet.report(0, running=1)
    assert not is_sent(fleet.ask())
    fleet.dispatcher.unobserved("w0", "its metrics are gone")
    fleet.dispatcher.started(first)
    assert is_sent(fleet.ask())


def test_an_engine_that_comes_back_is_not_judged_by_what_it_reported() -> None:
    fleet = Fleet()
    first = fleet.ask()
    fleet.dispatcher.started(first)
    fleet.report(0)
    fleet.dispatcher.engine_down("w0")
    fleet.dispatcher.cancelled(first, ran_us=1)
    fleet.dispatcher.engine_up("w0")

    assert is_sent(fleet.ask())
    assert is_sent(fleet.ask())


def test_the_operators_limit_counts_requests_only() -> None:
    fleet = Fleet(limit=3)
    fleet.report(0, running=0)

    assert [is_sent(fleet.ask()) for _ in range(4)] == [True, True, True, False]


def test_what_was_sent_and_does_not_run_yet_is_taken_from_what_is_reported() -> None:
    fleet = Fleet()
    fleet.report(10 * LONG, running=0)
    fleet.ask()
    fleet.ask()
    fleet.report(3 * LONG, running=1)  # the other one is on its way, or waits in the engine

    assert [is_sent(fleet.ask()) for _ in range(3)] == [True, True, False]


def test_an_old_report_does_not_bring_back_the_memory_that_was_taken_since() -> None:
    """SGLang renews its numbers every forty passes."""
    room = MemoryRoom()
    room.reported(1000, newest=0, pending_len=0, waiting=0)
    room.sent(800)
    assert not room.fits(300)
    room.reported(1000, newest=0, pending_len=0, waiting=0)
    assert not room.fits(300)
    room.reported(1001, newest=0, pending_len=0, waiting=0)
    assert room.fits(300)


def test_a_usual_answer_needs_memory_too() -> None:
    room = MemoryRoom()
    room.reported(1000, newest=0, pending_len=0, waiting=0)
    assert room.fits(1000)
    for number in range(1, 201):
        room.sent(0)
        room.ended(number, 0, 10)

    assert room.fits(990)
    assert not room.fits(991)


def test_outputs_return_with_a_request_that_ran_at_the_last_report_only() -> None:
    """What a later one put out was never taken: reports may be seconds apart."""
    room = MemoryRoom()
    room.sent(100)
    room.reported(1000, newest=1, pending_len=0, waiting=0)
    room.sent(100)
    room.ended(2, 100, 320)
    assert room.fits(990) and not room.fits(991)

    room.ended(1, 100, 10)
    assert room.fits(1100) and not room.fits(1101)


@pytest.mark.parametrize(
    ("running", "ends", "returned"),
    [(1, 1, 0), (1, 0, 32), (2, 1, 32)],
    ids=["it waited", "it ran, the other one waited", "both ran"],
)
def test_outputs_return_with_a_request_that_ran_at_the_last_report(running, ends, returned) -> None:
    """Its prompt returns in any case. The expected answer is 1 token after one of 32."""
    fleet = Fleet()
    fleet.report(10 * LONG, running=0)
    tickets = [fleet.ask(), fleet.ask()]
    fleet.report((2 - running) * LONG + 101, running=running)
    room = fleet.dispatcher.engines["w0"].room
    assert room is not None and room.fits(101) and not room.fits(102)
    fleet.dispatcher.started(tickets[ends])
    fleet.dispatcher.finished(tickets[ends], Usage(LONG, 32, 0), ran_us=1)

    assert room.fits(LONG + 100 + returned) and not room.fits(LONG + 101 + returned)


@pytest.mark.parametrize("waiting", [0, 1])
def test_an_engine_whose_report_is_wrong_is_sent_one_now_and_then(waiting: int) -> None:
    """It says that its memory is full, and nothing waits in it: once in so many reports one is sent."""
    room = MemoryRoom()
    tries = 0
    for number in range(300):
        room.reported(number % 2, newest=0, pending_len=0, waiting=waiting)
        tries += room.fits(100)

    assert tries == (0 if waiting else 2)


def test_cached_prompts_follow_beyond_the_limit_and_others_do_not() -> None:
    """The first limit is eight. When a request ends another is sent, and behind it up to 16 cached ones."""
    for shared, expected in ((58, 8 + 16), (0, 8)):
        fleet = Fleet()
        fleet.report(10**6, running=0)
        tickets = [fleet.ask(shared=shared, topic=1) for _ in range(40)]
        for ticket in tickets[:1]:
            fleet.finish(ticket)  # its slot is filled, and others follow
        assert sum(map(is_sent, tickets)) - 1 == expected

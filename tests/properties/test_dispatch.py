"""[18] Requests and engines in any order: nothing lost, nothing settled twice, no work left over."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from fairhit.dispatch import Ticket, TicketState, Usage
from fairhit.errors import EngineError, NoEngine
from fairhit.routers.d2lpm import D2LPM
from tests.unit.dispatch.test_dispatcher import dispatcher, send


class Gateway(RuleBasedStateMachine):
    """Requests and engines in any order."""

    tickets = Bundle("tickets")

    @initialize()
    def begin(self) -> None:
        self.dispatcher = dispatcher("w0", "w1")
        self.open: set[Ticket] = set()
        self.ended: set[Ticket] = set()

    @rule(target=tickets, client=st.sampled_from("ab"), text=st.sampled_from([b"p", b"q"]))
    def arrive(self, client: str, text: bytes) -> Ticket | None:
        try:
            ticket = send(self.dispatcher, client, text * 1000)
        except NoEngine:
            assert not self.dispatcher.ready()
            return None
        self.open.add(ticket)
        return ticket

    @rule(ticket=tickets)
    def start(self, ticket: Ticket | None) -> None:
        if ticket is not None and ticket.state is TicketState.WAITING:
            self.dispatcher.started(ticket)

    @rule(ticket=consumes(tickets), how=st.sampled_from(["finished", "gone", "refused"]))
    def end(self, ticket: Ticket | None, how: str) -> None:
        if ticket is None or ticket.state is TicketState.ENDED:
            return
        if how == "finished":
            self.dispatcher.finished(ticket, Usage(300, 10, 100), ran_us=1)
        elif how == "gone":
            self.dispatcher.cancelled(ticket, ran_us=1)
        else:
            self.dispatcher.refused(ticket)
        self.close(ticket)

    @rule(ticket=tickets)
    def fail(self, ticket: Ticket | None) -> None:
        if ticket is not None and ticket.state is not TicketState.ENDED:
            self.fail_one(ticket)

    @rule(number=st.integers(0, 2), forget=st.booleans())
    def lose(self, number: int, forget: bool) -> None:
        name = f"w{number}"
        if name not in self.dispatcher.engines:
            return
        lose = self.dispatcher.remove_engine if forget else self.dispatcher.engine_down
        for ticket in lose(name):
            self.fail_one(ticket)

    @rule(number=st.integers(0, 2))
    def come(self, number: int) -> None:
        self.dispatcher.engine_up(f"w{number}")

    def fail_one(self, ticket: Ticket) -> None:
        before = ticket.worker
        try:
            self.dispatcher.failed(ticket)
        except EngineError:
            self.close(ticket)
        else:
            assert ticket.worker != before and ticket.state is TicketState.WAITING

    def close(self, ticket: Ticket) -> None:
        assert ticket.state is TicketState.ENDED
        self.open.remove(ticket)
        self.ended.add(ticket)

    @invariant()
    def every_open_ticket_is_somewhere_and_no_ended_one_anywhere(self) -> None:
        held = [t for worker in self.dispatcher.engines.values() for t in worker.tickets]
        assert len(held) == len(set(held))
        assert set(held) <= self.open
        assert {t for t in self.open if t.state is TicketState.WAITING} <= set(held)
        in_flight = sum(account.in_flight for _, account in self.dispatcher.ledger.accounts())
        assert in_flight == len(self.open)

    def teardown(self) -> None:
        for ticket in list(self.open):
            self.dispatcher.cancelled(ticket, ran_us=1)
        router = self.dispatcher.router
        assert isinstance(router, D2LPM)
        for name, worker in self.dispatcher.engines.items():
            if worker.up:
                assert router.load.tokens(name) == 0
        self.dispatcher.index.check()


Gateway.TestCase.settings = settings(deadline=None, max_examples=60)
TestGateway = Gateway.TestCase

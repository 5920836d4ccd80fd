"""A request waits beside an idle engine while a client at another gateway has precedence."""

from dataclasses import dataclass, field

import pytest
from tests.properties.engines import World

from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.dispatch import (
    Dispatcher,
    LedgerSharing,
    LedgerUpdate,
    QueueRules,
    Ticket,
    TicketState,
)


@dataclass
class Turns:
    """Engines behind a gateway that shares a ledger; `b` waits at another gateway and has credit."""

    world: World = field(default_factory=lambda: World(1, 1, rules=QueueRules(shared=True)))

    @property
    def dispatcher(self) -> Dispatcher:
        return self.world.dispatcher

    def hear(self) -> None:
        """Give client `b` precedence at every engine."""
        deficits = {"a": -1000 * UNITS_PER_TOKEN, "b": 1000 * UNITS_PER_TOKEN}
        news = LedgerUpdate(deficits=deficits, elsewhere={(): ("b",)})
        LedgerSharing(self.dispatcher).adopt(news)

    def waiting(self, count: int = 1) -> list[Ticket]:
        """Submit requests of `a`, which wait."""
        self.hear()
        asked = [self.world.ask("a", output_len=1, topic=0) for _ in range(count)]
        assert all(ticket.state is TicketState.QUEUED for ticket in asked)
        return asked


def safe_off(dispatcher: Dispatcher) -> None:
    dispatcher.set_scheduler("fcfs")


def other_weights(dispatcher: Dispatcher) -> None:
    dispatcher.change(max_in_flight=1000, weights=Weights({"b": 2}))


@pytest.mark.parametrize("switch", [safe_off, other_weights])
def test_who_waits_is_sent_when_a_switch_makes_it_his_turn(switch: object) -> None:
    """No request arrives or ends, and no further update of the ledger arrives."""
    turns = Turns()
    asked = turns.waiting(20)
    assert callable(switch)
    switch(turns.dispatcher)
    turns.world.check()

    assert sum(ticket.state is TicketState.WAITING for ticket in asked) >= 2
    assert {ticket.worker for ticket in asked if ticket.state is TicketState.WAITING} == {
        "w0",
        "w1",
    }
    assert sum(len(engine.queue) for engine in turns.world.engines.values()) >= 2  # they are sent


def test_what_waits_for_an_engine_that_drains_has_no_turn_to_wait_for() -> None:
    """No other engine serves its model; the engine drains, and must finish."""
    turns = Turns(World(1, rules=QueueRules(shared=True)))
    (asked,) = turns.waiting()
    turns.dispatcher.set_accepting("w0", accepts=False)

    assert (asked.state, asked.worker) == (TicketState.WAITING, "w0")

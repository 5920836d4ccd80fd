"""The policy `fair` in the gateway's queue: lengths in tokens, the context charged, prices of the engines."""

import pytest

from fairhit.core.costs import ENGINE, ContextCost, parse_cost
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, Usage
from fairhit.dispatch.accounting.engine_prices import EnginePrices
from fairhit.errors import ConfigError
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

BYTES_PER_TOKEN = 4  # what the gateway assumes until an engine has reported


class Gate:
    """A dispatcher with one engine that runs one request at a time."""

    def __init__(self, **settings: object) -> None:
        self.sent: list[Ticket] = []
        rules = QueueRules(scheduler="fair", max_engine_requests=1, **settings)  # type: ignore[arg-type]
        self.dispatcher = Dispatcher(
            router=D2LPM(), index=ApproximatePrefixIndex(), rules=rules, on_ready=self.sent.append
        )
        self.dispatcher.engine_up("w")
        self.number = 0

    def ask(self, client: str, text: bytes, *, max_tokens: int = 1000) -> Ticket:
        self.number += 1
        request = Request(
            id=str(self.number),
            client=client,
            prompt=ChunkedText().extended(text).chunks,
            input_len=self.dispatcher.scale.tokens(len(text)),
            max_tokens=max_tokens,
            order=self.number,
        )
        ticket = self.dispatcher.arrive(request, model=None, text_len=len(text), streams=True)
        if ticket.state.name == "WAITING" and ticket not in self.sent:
            self.sent.append(ticket)
        return ticket

    def answer(
        self, *, cached_len: int | None = None, outputs: int = 1, prompt_len: int = 0
    ) -> str:
        """Answer the request that was sent; return its client."""
        ticket = self.sent.pop(0)
        self.dispatcher.started(ticket)
        for so_far in range(16, outputs, 16):
            self.dispatcher.emitted(ticket, so_far)
        prompt_len = prompt_len or ticket.request.input_len
        cached_len = ticket.matched_len if cached_len is None else cached_len
        self.dispatcher.finished(ticket, Usage(prompt_len, outputs, cached_len), ran_us=1)
        return ticket.request.client

    def credit(self, client: str) -> int:
        return self.dispatcher.queue.credit(client)

    def cost(self) -> object:
        return self.dispatcher.queue.cost


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        (
            {"scheduler": "fair", "prepay": "none"},
            (
                "policy fair, cost engine (fitted), quantum 1024, overdraft 1024, near 256, "
                "eviction the engine's, prepay none"
            ),
        ),
        ({"quantum": 100, "cost": TokenCost()}, "policy dlpm, cost linear:1,2, quantum 100"),
        ({"shared": True}, "policy dlpm, cost linear:1,2, quantum 4096"),
    ],
)
def test_the_line_at_the_start_names_policy_cost_and_every_setting_in_force(
    rules: dict[str, object], line: str
) -> None:
    assert QueueRules(**rules).described() == line  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"overdraft": 1}, "overdraft: the scheduler dlpm has none; expected with fair"),
        ({"near": 1}, "near: the scheduler dlpm has none; expected with fair"),
        ({"prepay": "none"}, "prepay: the scheduler dlpm has none; expected with fair"),
        (
            {"scheduler": "fcfs", "quantum": 1},
            "quantum: the scheduler fcfs has none; expected with drr, dlpm, dlpm-predict, fair",
        ),
        (
            {"scheduler": "lpm", "cost": ENGINE},
            (
                "cost: the scheduler lpm has none; expected with lcf, vtc, vtc-predict, drr, dlpm, "
                "dlpm-predict, fair"
            ),
        ),
        (
            {"scheduler": "fair", "quantum": 100, "overdraft": 101},
            "overdraft: expected at most the quantum, 100, got 101",
        ),
    ],
)
def test_a_setting_that_the_policy_lacks_or_cannot_have_is_refused(
    rules: dict[str, object], expected: str
) -> None:
    """At the start: an operator who sets it believes that it does something."""
    with pytest.raises(ConfigError) as refused:
        QueueRules(**rules).maker()  # type: ignore[arg-type]
    assert str(refused.value) == expected


def test_a_policy_chosen_later_takes_only_the_settings_it_has() -> None:
    """`POST /scheduler` shall not fail because the first policy had an overdraft."""
    rules = QueueRules(scheduler="fair", overdraft=10, near=1, prepay="none", cost=ENGINE)

    assert rules.maker("fcfs") and rules.maker("dlpm")


@pytest.mark.parametrize("prompt_len", [8_192, 10_000, 6_000])
def test_outputs_are_charged_behind_the_prompt_that_the_engine_counted(prompt_len: int) -> None:
    """The estimate of four bytes a token may be wrong by half, and an output's price is in its context."""
    gate = Gate(prepay="expected")
    gate.ask("a", b"a" * (8_192 * BYTES_PER_TOKEN))
    before = gate.credit("a")

    assert before < 0
    gate.answer(prompt_len=prompt_len, cached_len=1_000, outputs=200)

    computed = ENGINE.prefill(prompt_len - 1_000, 1_000)
    refilled = gate.credit("a") + computed + ENGINE.decode(prompt_len, 0, 200)
    assert refilled % (1024 * UNITS_PER_TOKEN) == 0, "whole quanta, and nothing else, were added"


@pytest.mark.parametrize(("overdraft", "order"), [(1024, "aaab"), (0, "abaa")])
def test_a_client_in_debt_goes_on_with_what_it_has_cached_within_its_overdraft(
    overdraft: int, order: str
) -> None:
    """A prompt of 5,000 tokens is 29 pieces of text: nine tenths of it are no 4,500 pieces."""
    gate = Gate(quantum=1024, overdraft=overdraft, cost=parse_cost("context:2,0"))
    prompt = b"p" * 20_480
    gate.ask("a", prompt)
    gate.ask("a", prompt + b"1")
    gate.ask("a", prompt + b"2")
    gate.ask("b", b"q" * 20_480)

    assert "".join(gate.answer() for _ in range(4)) == order


def test_matches_are_nearly_equal_by_their_tokens() -> None:
    """As 256 pieces of text `near` would be a megabyte: all matches would be nearly equal."""
    gate = Gate(cost=parse_cost("context:2,0"), quantum=65_536)
    gate.ask("warm", b"x" * 8_192)
    gate.ask("unmatched", b"y" * 8_192)
    gate.ask("matched", b"x" * 8_192)
    gate.ask("matched", b"x" * 8_192)

    assert [gate.answer() for _ in range(4)] == ["warm", "matched", "matched", "unmatched"]


def test_the_queue_takes_the_mean_of_the_engines_prices() -> None:
    """At a refill, and by a factor of two at most."""
    gate = Gate()
    prices = gate.dispatcher.queue.prices
    assert gate.dispatcher.queue.cost_source() == "default"
    assert prices.report("w", (2.0, 0.004, 0.0)) and prices.report("v", (4.0, 0.006, 0.001))
    assert gate.cost() is ENGINE, "nothing was refilled"

    for client in "ab" * 10:
        gate.ask(client, b"a" * 16_384)
    while gate.sent:
        gate.answer(cached_len=0)

    assert gate.cost() == ContextCost(
        output=3 * UNITS_PER_TOKEN, context=500_000, attention=50_000, fitted=True
    )
    assert gate.dispatcher.queue.cost_source() == "engines"


def test_one_refill_moves_a_price_by_a_factor_of_two_at_most() -> None:
    """One odd report must not make one client's requests a thousand times dearer."""
    prices = EnginePrices()
    prices.report("w", (400.0, 3.0, 0.2))

    assert prices.cost(ENGINE) == ContextCost(
        output=4 * UNITS_PER_TOKEN, context=540_000, attention=20_000_000, fitted=True
    )


def test_a_pinned_cost_follows_no_engine() -> None:
    """The operator's word holds, as in an engine."""
    pinned = parse_cost("context:3,0.001")
    gate = Gate(cost=pinned)
    gate.dispatcher.queue.prices.report("w", (9.0, 1.0, 0.1))
    for client in "ab" * 5:
        gate.ask(client, b"a" * 16_384)
    while gate.sent:
        gate.answer(cached_len=0)

    assert gate.cost() is pinned
    assert gate.dispatcher.queue.cost_source() == "setting"


def test_prices_of_an_engine_that_is_gone_are_not_in_the_mean() -> None:
    """And with the last of them the cost stays where it is."""
    prices = EnginePrices()
    prices.report("w", (2.0, 0.004, 0.0))
    prices.report("v", (4.0, 0.006, 0.0))
    assert not prices.report("v", (4.0, 0.006, 0.0)), "no news"
    assert prices.report("w", None)
    assert prices.mean == (4.0, 0.006, 0.0)
    assert prices.report("v", None)

    assert prices.cost(ENGINE) is ENGINE

"""The dispatcher by example: charges move with a ticket, and end as what its engine reports."""

from typing import Any

import pytest

from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, TicketState, Usage
from fairhit.errors import EngineFailed, NoEngine, NotFound, QueueFull
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText


class Order:
    """Numbers requests."""

    number = 0


def send(
    dispatcher: Dispatcher,
    client: str = "a",
    text: bytes = b"",
    model: str | None = None,
    **how: Any,
) -> Ticket:
    Order.number += 1
    text = text or b"%d" % Order.number * 100
    request = Request(
        id=str(Order.number),
        client=client,
        prompt=ChunkedText().extended(text).chunks,
        input_len=max(1, dispatcher.scale.tokens(len(text))),
        max_tokens=50,
        order=Order.number,
    )
    return dispatcher.arrive(request, model=model, text_len=len(text), **how)


def dispatcher(*workers: str, **settings: int) -> Dispatcher:
    made = Dispatcher(router=D2LPM(quantum=100_000), index=ApproximatePrefixIndex(), **settings)
    for worker in workers:
        made.engine_up(worker)
    return made


def spent(made: Dispatcher, client: str, worker: str) -> int:
    """Return what a client was charged at a worker, in tokens."""
    assert isinstance(made.router, D2LPM)
    return (made.router.quantum_of(client) - made.router.deficit(client, worker)) // UNITS_PER_TOKEN


def test_a_finished_request_is_charged_what_the_engine_reports() -> None:
    made = dispatcher("w")
    ticket = send(made)
    made.started(ticket)
    made.finished(ticket, Usage(prompt_len=80, output_len=7, cached_len=30), ran_us=1)

    assert spent(made, "a", "w") == 50 + 2 * 7
    ((client, account),) = made.ledger.accounts()
    assert (client, account.in_flight) == ("a", 0)
    assert (
        account.service.extend_len,
        account.service.cached_len,
        account.service.output_len,
    ) == (50, 30, 7)


def test_without_a_report_the_estimate_stays() -> None:
    """If the engine reports no cached tokens, the charge is the prefix index's estimate."""
    made = dispatcher("w")
    text = b"x" * 4096
    first = send(made, text=text)
    made.finished(first, Usage(prompt_len=1024, output_len=0, cached_len=None), ran_us=1)
    second = send(made, text=text)
    made.finished(second, Usage(prompt_len=1024, output_len=0, cached_len=None), ran_us=1)

    assert made.engines["w"].reports_cached is False
    assert spent(made, "a", "w") == 1024 + 1


def test_a_report_of_the_outputs_alone_leaves_the_prompt_as_estimated() -> None:
    """A prompt of which an engine reports 0 tokens is charged by its estimate."""
    made = dispatcher("w")
    ticket = send(made, text=b"x" * 4096)
    made.finished(ticket, Usage(prompt_len=0, output_len=7, cached_len=0), ran_us=1)

    assert (ticket.final_len, ticket.output_len) == (1024, 7)
    assert spent(made, "a", "w") == 1024 + 2 * 7


def test_once_an_engine_has_reported_cached_tokens_silence_means_none() -> None:
    """vLLM omits the details if nothing was cached; the index may have estimated otherwise."""
    made = dispatcher("w")
    text = b"x" * 4096
    made.finished(
        send(made, text=text), Usage(prompt_len=1024, output_len=0, cached_len=24), ran_us=1
    )
    made.finished(
        send(made, text=text), Usage(prompt_len=1024, output_len=0, cached_len=None), ran_us=1
    )

    assert made.engines["w"].reports_cached is True
    assert spent(made, "a", "w") == 1000 + 1024
    made.engine_down("w")
    made.engine_up("w")
    assert made.engines["w"].reports_cached is None  # its flags may be others now


def test_an_absurd_answer_ruins_neither_the_client_nor_the_scale() -> None:
    made = dispatcher("w")
    text = b"x" * 4096
    made.finished(send(made, text=text), Usage(10**15, 10**15, 0), ran_us=1)
    ((_, account),) = made.ledger.accounts()
    assert account.service.extend_len <= 4096 + (1 << 17)
    assert account.service.output_len <= 50 * (128 + 1024)  # max_tokens, for any number of answers

    for prompt_len in (10**15, 5000, 0):
        made.finished(send(made, text=text), Usage(prompt_len, 1, 0), ran_us=1)
        assert made.scale.tokens(4096) == 1024


def test_a_caller_that_leaves_pays_for_what_its_engine_can_have_done() -> None:
    """Streamed outputs are counted; before the first the prompt may be computed; unsent is free."""
    made = dispatcher("w")
    unsent, unanswered, reading = (send(made, streams=True) for _ in range(3))
    made.started(reading)
    reading.output_len = 5
    made.cancelled(unsent, ran_us=0)
    made.cancelled(unanswered, ran_us=60_000_000)
    made.cancelled(reading, ran_us=60_000_000)

    settled = [(one.final_len, one.output_len) for one in (unsent, unanswered, reading)]
    assert settled == [(0, 0), (unanswered.extend_len, 0), (reading.extend_len, 5)]
    assert spent(made, "a", "w") == unanswered.extend_len + reading.extend_len + 2 * 5


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize(("answers", "outputs"), [(1, 9), (2, 18), (9, 50), (0, 0)])
def test_an_answer_in_one_piece_thrown_away_costs_the_outputs_that_the_time_was_enough_for(
    queues: bool, answers: int, outputs: int
) -> None:
    """The engine's pace decides, up to the 50 outputs asked for; 0 at an endpoint without outputs."""
    rules = QueueRules() if queues else None
    made = Dispatcher(router=D2LPM(quantum=100_000), index=ApproximatePrefixIndex(), rules=rules)
    made.engine_up("w")
    for _ in range(900):  # 100 ms for each of 20 outputs
        made.finished(send(made), Usage(100, 40, 0), ran_us=4_000_000)
    before = spent(made, "a", "w")
    ticket = send(made, answers=answers)
    made.cancelled(ticket, ran_us=990_000)

    assert (ticket.final_len, ticket.output_len) == (ticket.extend_len, outputs)
    assert spent(made, "a", "w") - before == ticket.extend_len + 2 * outputs


def test_a_failed_request_moves_with_its_charge_once_per_engine() -> None:
    made = dispatcher("v", "w")
    ticket = send(made)
    first = ticket.worker
    made.failed(ticket)

    assert ticket.worker != first
    assert spent(made, "a", first) == 0
    assert spent(made, "a", ticket.worker) == ticket.extend_len
    with pytest.raises(EngineFailed):
        made.failed(ticket)
    assert spent(made, "a", ticket.worker) == 0
    assert ticket.state is TicketState.ENDED


def test_an_answer_that_has_begun_does_not_move() -> None:
    made = dispatcher("v", "w")
    ticket = send(made)
    made.started(ticket)
    ticket.output_len = 3
    with pytest.raises(EngineFailed):
        made.failed(ticket)

    assert spent(made, "a", ticket.worker) == ticket.extend_len + 2 * 3


def test_a_lost_engine_hands_back_what_waits_and_a_new_life_starts_clean() -> None:
    made = dispatcher("w")
    waiting, streaming = send(made), send(made)
    made.started(streaming)

    assert made.engine_down("w") == [waiting]
    with pytest.raises(NoEngine):
        made.failed(waiting)
    made.engine_up("w")
    made.finished(streaming, None, ran_us=1)
    assert spent(made, "a", "w") == 0


def test_the_next_turn_of_a_conversation_finds_its_engine() -> None:
    """The answer is in the index too: the next turn of a conversation begins with it."""
    made = dispatcher("v", "w")
    prompt = b"q" * 2048
    ticket = send(made, text=prompt)
    said = ChunkedText().extended(prompt + b"a" * 2048)
    made.finished(ticket, None, ran_us=1)
    made.remember(ticket.worker, said.chunks)
    follow_up = send(made, text=prompt + b"a" * 2048 + b"?" * 300)

    assert follow_up.worker == ticket.worker
    assert follow_up.matched_len >= 4096 // 4


def test_what_a_scheduler_knows_of_a_cache_is_bounded_as_the_index_is() -> None:
    """Prompts and answers may be longer than the index's capacity."""
    index, text = ApproximatePrefixIndex(capacity=3), ChunkedText()
    made = Dispatcher(router=D2LPM(), index=index, rules=QueueRules())
    made.engine_up("w")
    view = made.engines["w"].view
    assert view is not None
    for number in range(5):
        ticket = send(made, text=b"%d" % number * 5000)
        made.remember("w", text.extended(b"%d" % number * 6000).chunks)
        made.finished(ticket, None, ran_us=1)
        assert len(view) == index.size("w") == 3


def test_one_clients_limit_is_not_the_others() -> None:
    made = dispatcher("w", max_in_flight=2)
    tickets = [send(made, "a"), send(made, "a")]
    with pytest.raises(QueueFull):
        send(made, "a")
    send(made, "b")
    made.cancelled(tickets[0], ran_us=1)
    send(made, "a")


def test_a_place_kept_is_a_place_taken() -> None:
    """Prompts that are being tokenized count, or a client could have thousands of them."""
    made = dispatcher("w", max_in_flight=2)
    made.reserve("a")
    ticket = send(made, "a")
    for refused in (send, Dispatcher.reserve):
        with pytest.raises(QueueFull):
            refused(made, "a")
    made.reserve("b")
    made.release("a")
    send(made, "a")
    made.cancelled(ticket, ran_us=1)
    made.reserve("a")


def test_models_choose_among_engines() -> None:
    made = dispatcher()
    made.engine_up("v", models=["small"])
    made.engine_up("w", models=["small", "large"])

    assert send(made, model="large").worker == "w"
    with pytest.raises(NotFound, match="huge") as refused:
        send(made, model="huge")
    assert refused.value.param == "model"
    made.engine_down("w")
    with pytest.raises(NoEngine):  # it exists, only not now
        send(made, model="large")


def test_the_length_of_a_token_is_learnt() -> None:
    """Engines of two bytes a token: the estimate follows within a few long prompts."""
    made = dispatcher("w")
    for _ in range(50):
        made.finished(send(made, text=b"z" * 8000), Usage(4000, 1, 0), ran_us=1)

    assert 3800 <= made.scale.tokens(8000) <= 4000


def test_an_engine_that_takes_no_more_keeps_what_it_has() -> None:
    """An engine that drains or answers with errors keeps its requests and its cache."""
    made = dispatcher("v", "w")
    text = b"x" * 4096
    first = send(made, text=text)
    there = first.worker
    made.started(first)
    made.set_accepting(there, accepts=False)

    elsewhere = send(made, text=text)
    assert elsewhere.worker != there
    assert made.engines[there].tickets == {first}
    made.finished(first, None, ran_us=1)
    made.finished(elsewhere, None, ran_us=1)
    made.set_accepting(elsewhere.worker, accepts=False)
    assert not made.ready()
    with pytest.raises(NoEngine):
        send(made)
    made.set_accepting(there, accepts=True)
    again = send(made, text=text)
    assert (again.worker, again.matched_len > 0) == (there, True)


def test_an_engine_on_trial_gets_requests_when_more_are_let_through() -> None:
    """A trial gate reopened: the same gate is set again, and the engine still accepts requests."""

    class Gate:
        left = 1

        @property
        def lets_through(self) -> bool:
            return self.left > 0

        def sent(self) -> None:
            self.left -= 1

    made, gate = dispatcher("v", "w"), Gate()
    made.set_accepting("v", accepts=True, gate=gate)
    assert {send(made).worker for _ in range(4)} == {"v", "w"}
    assert send(made).worker == "w"
    gate.left = 1
    made.set_accepting("v", accepts=True, gate=gate)

    assert {send(made).worker for _ in range(4)} == {"v", "w"}
    assert gate.left == 0

"""The dispatcher over an index of token blocks: lengths, optimistic entries, and engines' reports."""

from array import array

from fairhit.core.cache.token_blocks import BLOCK_LEN, BlockedTokens
from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, Usage
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

PROMPT = BlockedTokens().extended(array("I", range(10 * BLOCK_LEN + 1)).tobytes())
SECOND_US = 1_000_000


def dispatcher(
    rules: QueueRules | None = None, block_len: int = BLOCK_LEN
) -> tuple[Dispatcher, PrecisePrefixIndex]:
    index = PrecisePrefixIndex(block_len=block_len)
    made = Dispatcher(router=D2LPM(quantum=100_000), index=index, rules=rules)
    made.engine_up("w")
    return made, index


def send(made: Dispatcher, number: int = 1, prompt: BlockedTokens = PROMPT) -> Ticket:
    request = Request(
        id=str(number),
        client="a",
        prompt=prompt.reusable,
        input_len=prompt.length,
        max_tokens=5,
        order=number,
    )
    return made.arrive(request, model=None, text_len=0)


def known(index: PrecisePrefixIndex, blocks: int) -> None:
    index.learn("w", Knowledge.COMPLETE)
    for block in PROMPT.chunks[:blocks]:
        index.confirm("w", block)


def test_blocks_are_as_many_tokens_as_they_have() -> None:
    made, index = dispatcher()
    known(index, 3)
    ticket = send(made)
    assert (ticket.matched_len, ticket.extend_len) == (3 * BLOCK_LEN, 7 * BLOCK_LEN + 1)


def test_a_block_is_as_long_as_the_index_was_configured() -> None:
    made, index = dispatcher(block_len=4)
    prompt = BlockedTokens(block_len=4).extended(array("I", range(41)).tobytes())
    index.learn("w", Knowledge.COMPLETE)
    for block in prompt.chunks[:3]:
        index.confirm("w", block)
    ticket = send(made, prompt=prompt)
    assert (ticket.matched_len, ticket.extend_len) == (3 * 4, 41 - 3 * 4)


def test_the_error_of_an_estimate_is_what_the_engine_said_less_what_was_thought() -> None:
    made, index = dispatcher()
    known(index, 3)
    length = PROMPT.length
    made.finished(send(made), Usage(length, 1, 2 * BLOCK_LEN), ran_us=1)
    error = made.estimates.of_each()["w"]
    assert (error.count, error.over, error.under) == (1, 0, BLOCK_LEN)

    made.finished(send(made, 2), Usage(length, 1, None), ran_us=1)  # an engine that left a zero out
    assert (error.count, error.over) == (2, 0)
    made.engine_down("w")
    made.remove_engine("w")
    assert made.estimates.of_each() == {}


def test_an_engine_that_reports_nothing_is_not_compared() -> None:
    made, _ = dispatcher()
    made.finished(send(made), Usage(PROMPT.length, 1, None), ran_us=1)
    assert made.estimates.of_each() == {}


def test_what_no_event_confirms_after_the_first_byte_is_not_there() -> None:
    """The first byte of a stream, or a whole answer, counts as admission."""
    for streams in (True, False):
        made, index = dispatcher()
        known(index, 0)
        ticket = send(made)
        if streams:
            made.started(ticket)
        else:
            made.finished(ticket, None, ran_us=1)
        index.confirm("w", PROMPT.chunks[0])
        index.advance(SECOND_US)
        assert index.match(PROMPT.chunks).of("w") == 10
        index.advance(3 * SECOND_US)
        assert index.match(PROMPT.chunks).of("w") == 1


def test_what_waits_is_kept_in_mind_for_as_long_as_it_may_wait() -> None:
    made, index = dispatcher()
    known(index, 0)
    send(made)
    index.advance(200 * SECOND_US)
    assert index.match(PROMPT.chunks).of("w") == 10


def test_schedulers_of_what_waits_here_hear_what_engines_say() -> None:
    made, index = dispatcher(QueueRules(max_engine_requests=1))
    view = made.engines["w"].view
    assert view is not None
    known(index, 4)
    assert view.match_len(PROMPT.chunks) == 4
    index.withdraw("w", PROMPT.chunks[2])
    assert view.match_len(PROMPT.chunks) == 2

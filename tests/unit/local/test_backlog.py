"""Backlogged time and service gaps, on records small enough to check by hand."""

from fairhit.local.demo import backlog
from fairhit.local.demo.closed_loop import Served


def served(
    tenant: str, *, sent: int, first: int, done: int, extend: int = 10, output: int = 2
) -> Served:
    """A request of one piece per token, between the piece that opens and the one with the usage."""
    return Served(
        tenant=tenant,
        engine="e",
        sent_us=sent,
        first_us=first,
        done_us=done,
        prompt_len=extend + 100,
        cached_len=100,
        output_len=output,
        pieces_us=(first, *range(first + 1, first + 1 + output), done),
    )


def test_a_tenant_is_backlogged_while_any_of_its_requests_has_not_begun():
    records = [
        served("a", sent=0, first=10, done=20),
        served("a", sent=5, first=15, done=20),
        served("a", sent=30, first=31, done=40),
        served("b", sent=0, first=50, done=60),
    ]

    assert backlog.backlogged(records, "a", "e") == [(0, 15), (30, 31)]
    assert backlog.backlogged(records, "a", "elsewhere") == []


def test_both_are_backlogged_where_the_intervals_meet():
    assert backlog.both([(0, 10), (20, 30)], [(5, 25)]) == [(5, 10), (20, 25)]
    assert backlog.both([(0, 10)], [(10, 20)]) == []


def test_short_intervals_are_left_out():
    assert backlog.lasting([(0, 5), (10, 30)], at_least_us=20) == [(10, 30)]


def test_service_is_extend_at_the_first_piece_and_twice_the_outputs_as_they_come():
    """The cached tokens are free; the outputs are counted where they were seen."""
    steps = backlog.service_steps([served("a", sent=0, first=10, done=20)], "a")

    assert steps == [(10, 10), (11, 2), (12, 2)]
    assert backlog.service_within(steps, [(0, 12)]) == 12


def test_tokens_that_share_a_piece_are_all_counted():
    record = served("a", sent=0, first=10, done=20, output=2)
    several = Served(
        tenant="a", engine="e", sent_us=0, first_us=10, done_us=20, prompt_len=110, cached_len=100,
        output_len=7, pieces_us=record.pieces_us,
    )  # fmt: skip

    assert sum(service for _, service in backlog.service_steps([several], "a")) == 10 + 2 * 7


def test_the_gap_is_the_most_over_any_part_of_an_interval():
    """a leads by 30, then b catches up and leads by 10: from peak to trough are 40."""
    a = [served("a", sent=0, first=t, done=t + 1, output=0) for t in (10, 11, 12)]
    b = [served("b", sent=0, first=t, done=t + 1, output=0) for t in (20, 21, 22, 23)]

    assert backlog.largest_gap([*a, *b], ("a", "b"), [(0, 100)]) == 40
    assert backlog.largest_gap([*a, *b], ("a", "b"), [(0, 12), (20, 22)]) == 20
    assert backlog.largest_gap([*a, *b], ("a", "b"), []) == 0

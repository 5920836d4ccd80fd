"""Waiting times in a run that is cut short: who was never served counts, too."""

from fairhit_lab.events import Cancel, Finish, FirstToken, Reject
from fairhit_lab.metrics.summary.waits import Waits


def test_a_client_that_starves_has_waited_until_the_end():
    """
    Client c has a request served after a second and one never: without the latter c would seem well served.
    """
    waits = Waits()
    for request in ("c1", "c2"):
        waits.start(request, "c", 0)

    waits(FirstToken(1_000_000, 0, "c1", "c"))
    found = waits.until(60_000_000)

    assert (found["c"]["count"], found["c"]["p50_s"], found["c"]["p99_s"]) == (2, 1.0, 60.0)


def test_who_left_or_was_turned_away_does_not_wait():
    waits = Waits()
    for request in ("c1", "c2", "c3"):
        waits.start(request, "c", 5)

    waits(Cancel(6, None, "c1", "c"))
    waits(Reject(6, None, "c2", "c", "rpm"))
    found = waits.until(1_000_005)

    assert (found["c"]["count"], found["c"]["max_s"]) == (1, 1.0)


def test_a_program_that_is_not_done_has_taken_the_time_until_the_end():
    """
    Of two programs, the first is done when its second request finishes; the other's child has not finished.
    """
    waits = Waits()
    for request, program, start_s in (
        ("a1", "a", 0),
        ("b1", "b", 0),
        ("a2", "a", 2),
        ("b2", "b", 2),
    ):
        waits.start(request, "c", start_s * 1_000_000, program)
    for request, end_s in (("a1", 2), ("b1", 2), ("a2", 5)):
        waits(Finish(end_s * 1_000_000, 0, request, "c", 1, 8))

    found = waits.programs_until(60_000_000)

    assert (found["c"]["count"], found["c"]["p50_s"], found["c"]["max_s"]) == (2, 5.0, 60.0)


def test_a_program_that_lost_a_request_is_not_waited_for():
    waits = Waits()
    for request, program in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        waits.start(request, "c", 0, program)

    waits(Cancel(6, None, "a1", "c"))
    found = waits.programs_until(1_000_000)

    assert (found["c"]["count"], found["c"]["max_s"]) == (1, 1.0)

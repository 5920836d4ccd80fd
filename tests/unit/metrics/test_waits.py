"""Waiting times in a run that is cut short: who was never served counts, too."""

from fairlead.core.events import Cancel, FirstToken, Reject
from fairlead.metrics.waits import Waits


def test_who_starves_has_waited_until_the_end():
    """
    One request of c is served after a second, another never: without it c would look well served.
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

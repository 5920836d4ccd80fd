"""The limit of requests per client: what is turned away, what is held, and until when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.errors import ConfigError
from fairhit_lab.baselines.rpm import RateLimit

SECOND = 1_000_000


def starts(limit, times, client="a"):
    """When each request may start, in seconds; None if rejected."""
    given_us = [limit.start_us(client, time * SECOND) for time in times]
    return [None if us is None else us / SECOND for us in given_us]


def test_reject_counts_the_accepted_requests_of_the_last_minute():
    """
    Two a minute: the third is turned away, and does not count; at 60 s the first has left (t-W, t].
    """
    limit = RateLimit(limit=2, window_us=60 * SECOND, mode="reject")

    assert starts(limit, [0, 10, 20, 59, 60, 61, 70]) == [0, 10, None, None, 60, None, 70]


def test_delay_holds_the_excess_until_the_next_fixed_window():
    """
    Two a minute: five at 50 s run at 50, 50, 60, 60 and 120 s, for the minutes are the clock's; the
    one of 130 s finds one place left in its minute, and the next has to wait again.
    """
    limit = RateLimit(limit=2, window_us=60 * SECOND, mode="delay")

    assert starts(limit, [50] * 5 + [130, 131]) == [50, 50, 60, 60, 120, 130, 180]


def test_each_client_has_a_limit_of_its_own():
    limit = RateLimit(limit=1, window_us=60 * SECOND, mode="reject")

    assert [starts(limit, [0], client) for client in "aab"] == [[0], [None], [0]]


@pytest.mark.parametrize("mode", ["reject", "delay"])
def test_clients_that_left_are_forgotten(mode):
    """
    A thousand names in one minute, then one client: the table does not keep the thousand.
    """
    limit = RateLimit(limit=3, window_us=60 * SECOND, mode=mode)
    for number in range(1_000):
        limit.start_us(f"client-{number}", 0)
    for second in range(1_000):
        limit.start_us("b", (100 + 60 * second) * SECOND)

    assert len(limit) == 1


@given(
    times=st.lists(st.integers(0, 40), max_size=60).map(sorted),
    clients=st.lists(st.sampled_from("ab"), min_size=60, max_size=60),
    limit=st.integers(1, 4),
    mode=st.sampled_from(["reject", "delay"]),
)
def test_no_window_holds_more_than_the_limit(times, clients, limit, mode):
    """Compared with a full recount: no client exceeds the limit, and no client below it is rejected."""
    rate, begun = RateLimit(limit=limit, window_us=10, mode=mode), {"a": [], "b": []}
    for now, client in zip(times, clients, strict=False):
        mine = begun[client]
        start = rate.start_us(client, now)
        if mode == "reject":
            free = sum(now - 10 < earlier <= now for earlier in mine) < limit
            assert start == (now if free else None)
        else:
            room = (k for k in range(100) if sum(s // 10 == k for s in mine) < limit)
            first = next(k for k in room if k >= max([now, *mine]) // 10)
            assert start == max(now, 10 * first)
        mine += [] if start is None else [start]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 0}, "rpm limit: expected at least 1 request, got 0"),
        ({"window_us": 0}, "rpm window: expected at least a microsecond, got 0 us"),
        ({"mode": "drop"}, "rpm mode: expected one of reject, delay, got 'drop'"),
    ],
)
def test_a_wrong_limit_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        RateLimit(**settings)

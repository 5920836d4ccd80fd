"""Service over time: windows of bins, however passes are reported."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.event_streams import Stream, run_together

from fairhit_lab.events import PS_PER_US, Admit, Decode, Dispatch, Finish, FirstToken
from fairhit_lab.metrics.series import Series, SeriesPoint

SECOND = 10**6


def series(events, **settings):
    made = Series(**settings)
    for event in events:
        made(event)
    return made


ONE = [
    Dispatch(0, 0, "r", "a"),
    Admit(SECOND, 0, "r", "a", 0, 6, 10),
    Decode(3 * SECOND, 0, 0, {"a": 1}, 2, SECOND * PS_PER_US, SECOND * PS_PER_US, 0),
    FirstToken(2 * SECOND, 0, "r", "a"),
    Finish(3 * SECOND, 0, "r", "a", 1, 2),
]


def test_windows_lie_around_the_time_and_count_all_of_their_length():
    """Bins of a second: 6 (10) tokens of input at 1 s, two of output each at 2 s and 3 s."""
    rows = list(series(ONE).rows(window_us=2 * SECOND, every_us=SECOND))

    def values(metric):
        return [row.value for row in rows if row.metric == metric]

    assert values("service_system") == [0, 3, 4, 2]
    assert values("service_client") == [0, 5, 6, 2]
    assert values("requests") == [0.5, 0.5, 0, 0]
    assert values("response_time") == [None, None, 2, 2]
    assert rows[0] == SeriesPoint(0, "a", "service_system", 0)


def test_who_was_held_back_waited_since_it_started():
    made = Series()
    made.start("r", "a", 0)
    for event in (Dispatch(5 * SECOND, 0, "r", "a"), FirstToken(6 * SECOND, 0, "r", "a")):
        made(event)

    times = [row.value for row in made.rows() if row.metric == "response_time"]
    assert times == [6.0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), bin_us=st.integers(1, 30))
def test_a_run_of_passes_falls_into_the_bins_of_its_passes(seed, bin_us):
    events = Stream(Random(seed)).events

    together = series(run_together(events), bin_us=bin_us)

    assert list(together.rows(window_us=40)) == list(
        series(events, bin_us=bin_us).rows(window_us=40)
    )

"""The VTC paper's metrics need a row a request: arrival, first token, finish, lengths."""

from random import Random

from tests.reference import summary as plain
from tests.reference.event_streams import Stream

from fairhit_lab.events import Reject
from fairhit_lab.metrics.request_rows import RequestRows
from fairhit_lab.metrics.vtc_table import Row, served


def rows_of(events, *starts):
    rows = RequestRows()
    for start in starts:
        rows.start(*start)
    for event in events:
        rows(event)
    return rows.rows


def test_each_finished_request_is_a_row_and_each_other_one_aborted():
    """With workers that fail, preemptions and cancellations on the way."""
    events = Stream(Random(3), requests=40).events
    finished = plain.of(events, plain.Finish)
    begun, first = plain.starts(events), plain.first_tokens(events)
    inputs = {event.request: event.input_len for event in plain.of(events, plain.Admit)}

    rows = rows_of(events)

    assert served(rows) == [
        Row(
            event.client,
            begun[event.request] / 10**6,
            first[event.request] / 10**6,
            event.t_us / 10**6,
            inputs[event.request],
            event.output_len,
        )
        for event in finished
    ]
    ended = plain.of(events, (plain.Reject, plain.Cancel))
    assert len(rows) - len(served(rows)) == len(ended) > 0


def test_who_was_held_back_arrived_when_it_started():
    row = Row("a", 2.0, 5.0, 5.0, 0, 0, aborted=True)

    assert rows_of([Reject(5 * 10**6, None, "r", "a", "rpm")], ("r", "a", 2 * 10**6)) == [row]

"""The format of DESIGN 6.2: written by the simulator, read by everyone who measures."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.errors import ConfigError
from fairhit_lab.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Refill,
    Reject,
    WorkerUpOrDown,
)
from fairhit_lab.metrics.events_file import read_events, writing_events

EVERYTHING = [
    WorkerUpOrDown(0, 0, True),
    Dispatch(0, 0, "r1", "a"),
    Dispatch(0, None, "r3", "b"),
    Enqueue(0, 0, "r1", "a"),
    Reject(1, None, "r2", "b", "rpm"),
    Refill(2, 0, 3),
    Evict(2, 0, 17),
    Admit(1_000_000, 0, "r1", "a", 4, 3, 10),
    Decode(2_500_000, 0, 4, {"b": 1, "a": 2}, 1, 1_000_000 * PS_PER_US, 1_500_000 * PS_PER_US, 0),
    FirstToken(2_500_000, 0, "r1", "a"),
    Preempt(2_500_000, 0, "r1", "a", 5),
    Admit(2_500_001, 0, "r1", "a", 5, 11, 11, True),
    Cancel(3_000_000, 0, "r3", "b"),
    Finish(3_600_000_000, 0, "r1", "a", 6, 2),
    WorkerUpOrDown(3_600_000_000, 0, False),
]

LINES = """\
{"ev":"worker","t":0.000000,"w":0,"up":true}
{"ev":"dispatch","t":0.000000,"w":0,"id":"r1","client":"a"}
{"ev":"dispatch","t":0.000000,"w":null,"id":"r3","client":"b"}
{"ev":"enqueue","t":0.000000,"w":0,"id":"r1","client":"a"}
{"ev":"reject","t":0.000001,"w":null,"id":"r2","client":"b","reason":"rpm"}
{"ev":"refill","t":0.000002,"w":0,"k":3}
{"ev":"evict","t":0.000002,"w":0,"tokens":17}
{"ev":"admit","t":1.000000,"w":0,"id":"r1","client":"a","step":4,"extend":3,"input":10}
{"ev":"decode","t":2.500000,"w":0,"step":4,"counts":{"a":2,"b":1}}
{"ev":"first","t":2.500000,"w":0,"id":"r1","client":"a"}
{"ev":"preempt","t":2.500000,"w":0,"id":"r1","client":"a","step":5}
{"ev":"admit","t":2.500001,"w":0,"id":"r1","client":"a","step":5,"extend":11,"input":11,"again":true}
{"ev":"cancel","t":3.000000,"w":0,"id":"r3","client":"b"}
{"ev":"finish","t":3600.000000,"w":0,"id":"r1","client":"a","step":6,"output":2}
{"ev":"worker","t":3600.000000,"w":0,"up":false}
"""


def write(path, events):
    with writing_events(path) as observer:
        for event in events:
            observer(event)


def as_read(event):
    """A file does not say when a pass began."""
    if not isinstance(event, Decode):
        return event
    return event._replace(start_ps=event.t_us * PS_PER_US, pass_ps=0)


def test_each_event_is_one_line_with_its_keys_in_a_fixed_order(tmp_path):
    write(tmp_path / "e.jsonl", EVERYTHING)

    assert (tmp_path / "e.jsonl").read_text() == LINES


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e.jsonl.zst"])
def test_what_was_written_is_read_back(tmp_path, name):
    write(tmp_path / name, EVERYTHING)

    assert list(read_events(tmp_path / name)) == [as_read(event) for event in EVERYTHING]


def test_the_same_events_are_the_same_bytes_packed_too(tmp_path):
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write(tmp_path / name, EVERYTHING)

    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.jsonl.gz").read_bytes()).decode() == LINES


def test_a_run_of_passes_is_one_line_a_pass(tmp_path):
    """Passes of 1.5 s that grow by 1 us each: they end at 1.5, 3.000001 and 4.500003."""
    run = Decode(4_500_003, 2, 7, {"a": 1}, 3, 0, 1_500_000 * PS_PER_US, PS_PER_US)
    write(tmp_path / "e.jsonl", [run])

    passes = list(read_events(tmp_path / "e.jsonl"))

    assert [(p.t_us, p.step, p.counts, p.passes) for p in passes] == [
        (1_500_000, 7, {"a": 1}, 1),
        (3_000_001, 8, {"a": 1}, 1),
        (4_500_003, 9, {"a": 1}, 1),
    ]


@settings(max_examples=100, deadline=None)
@given(t_us=st.integers(0, 10**17), client=st.text(), request_id=st.text())
def test_any_name_and_any_time_survive(tmp_path_factory, t_us, client, request_id):
    """Times are integers inside: nothing may be lost to seconds with decimals, nor names to quoting."""
    path = tmp_path_factory.mktemp("events") / "e.jsonl"
    write(path, [Dispatch(t_us, 0, request_id, client)])

    assert list(read_events(path)) == [Dispatch(t_us, 0, request_id, client)]


def test_a_run_that_breaks_off_leaves_no_half_file(tmp_path):
    with pytest.raises(KeyError), writing_events(tmp_path / "e.jsonl") as observer:
        observer("no event at all")

    assert list(tmp_path.iterdir()) == []


BAD = [
    ("nonsense", "expected a JSON object"),
    ("[1]", "expected a JSON object"),
    ('{"t":0,"w":0}', 'field "ev"'),
    ('{"ev":["first"],"t":0,"w":0}', 'field "ev"'),
    ('{"ev":"begin","t":0,"w":0}', 'field "ev"'),
    ('{"ev":"refill","t":-1,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":0.0000001,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":NaN,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":1e999999999,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":1e30,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":"1","w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":true,"w":0,"k":1}', 'field "t"'),
    ('{"ev":"refill","t":1,"w":null,"k":1}', 'field "w"'),
    ('{"ev":"refill","t":1,"w":0}', 'field "k": expected a whole number >= 1, got no such field'),
    ('{"ev":"evict","t":1,"w":0,"tokens":1.5}', 'field "tokens"'),
    ('{"ev":"worker","t":1,"w":0,"up":1}', 'field "up"'),
    ('{"ev":"first","t":1,"w":0,"id":7,"client":"a"}', 'field "id"'),
    ('{"ev":"first","t":1,"w":0,"id":"7"}', 'field "client"'),
    ('{"ev":"reject","t":1,"w":0,"id":"7","client":"a","reason":"no"}', 'field "reason"'),
    ('{"ev":"reject","t":1,"w":0,"id":"7","client":"a","reason":[]}', 'field "reason"'),
    ('{"ev":"decode","t":1,"w":0,"step":0,"counts":[]}', 'field "counts"'),
    ('{"ev":"decode","t":1,"w":0,"step":0,"counts":{"a":0}}', 'field "counts"'),
    ('{"ev":"admit","t":1,"w":0,"id":"7","client":"a","step":0,"extend":9,"input":8}', "input"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD)
def test_a_bad_line_is_one_clear_error(tmp_path, line, complaint):
    path = tmp_path / "e.jsonl"
    path.write_text('{"ev":"refill","t":1,"w":0,"k":1}\n' + line + "\n")

    with pytest.raises(ConfigError) as raised:
        list(read_events(path))

    message = str(raised.value)
    assert message.startswith(f"{path}:2: ") and complaint in message and "\n" not in message


def test_the_page_shows_these_lines():
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "events.md"

    assert page.read_text().split("```json\n")[1].split("```")[0] == LINES

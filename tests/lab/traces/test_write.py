"""The writer: what it writes is what the reader reads, in the same bytes each time."""

import gzip
import os

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.traces.files import written
from fairhit_lab.traces.trace import TraceRow, read_trace
from fairhit_lab.traces.write import line, write_trace

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
SEGMENTS = st.lists(st.tuples(NAMES, st.just(0), st.integers(1, 10**9)), min_size=1, max_size=4)
IDS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5).map(tuple)
PROMPTS = SEGMENTS.map(Runs) | IDS.map(lambda ids: Runs([(ids, 0, len(ids))]))
MICROS = st.integers(0, 10**17)


@st.composite
def traces(draw):
    """Any rows that keep the rules."""
    weights = draw(st.dictionaries(NAMES, st.none() | st.integers(1, 10**9), min_size=1))
    rows = []
    for arrival_us in sorted(draw(st.lists(MICROS, max_size=6))):
        client = draw(st.sampled_from(sorted(weights)))
        output = draw(st.none() | PROMPTS)
        output_len = len(output) if output is not None else draw(st.integers(1, 10**9))
        if output_len > 10**9:
            output, output_len = None, 10**9
        rows.append(
            TraceRow(
                id=f"{draw(NAMES)}{len(rows)}",
                client=client,
                arrival_us=arrival_us,
                prompt=draw(PROMPTS),
                output_len=output_len,
                max_tokens=draw(st.integers(output_len, 10**9)),
                output=output,
                program=draw(st.none() | NAMES),
                after=tuple(draw(st.sets(st.sampled_from([r.id for r in rows]), max_size=3)))
                if rows
                else (),
                weight=weights[client],
                cancel_us=draw(st.none() | st.integers(arrival_us, 10**17)),
            )
        )
    return rows


# Shrinking files takes minutes; the rows are small as they are.
@settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rows=traces(), name=st.sampled_from(["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"]))
def test_what_is_written_is_read_back(tmp_path_factory, rows, name):
    path = tmp_path_factory.mktemp("written") / name

    with written(path) as file:
        assert write_trace(rows, file) == len(rows)

    assert list(read_trace(path)) == rows


ROW = TraceRow(
    id="é", client="a", arrival_us=1_500_000, prompt=Runs([("A", 0, 3)]), output_len=2, max_tokens=4,
    after=("x", "y"), weight=500_000, cancel_us=2_000_001,
)  # fmt: skip


def test_a_line_says_no_more_than_it_must():
    assert line(ROW) == (
        b'{"id":"\\u00e9","client":"a","arrival":1.5,"prompt":[["A",3]],"output_len":2,"max_tokens":4,'
        b'"after":["x","y"],"weight":0.5,"cancel_at":2.000001}\n'
    )


def test_the_same_rows_are_the_same_bytes_packed_too(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        with written(tmp_path / name) as file:
            write_trace([ROW] * 3, file)

    first, second = ((tmp_path / name).read_bytes() for name in ("a.jsonl.gz", "b.jsonl.gz"))
    assert first == second
    assert gzip.decompress(first) == line(ROW) * 3


def interrupted():
    yield ROW
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, name):
    """Half a trace would be simulated as if it were whole."""
    path = tmp_path / name
    path.write_bytes(b"before")

    with pytest.raises(KeyboardInterrupt), written(path) as file:
        write_trace(interrupted(), file)

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(name, b"before")]


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    file, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    file.write_bytes(b"old")
    link.symlink_to(file)
    with written(link) as out:
        out.write(b"new")

    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    """
    Run as root, `--out /dev/stdout` once put a file in the place of the device.
    """
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with written(pipe) as out:
            out.write(b"row\n")
        assert os.read(reader, 100) == b"row\n"
    finally:
        os.close(reader)

    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]

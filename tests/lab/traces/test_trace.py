"""The reader: what a trace may say, what each mistake is answered with, and that it streams."""

import gzip
import io
import json
import sys

import pytest
import zstandard

from fairhit.core.cache.token_runs import Runs
from fairhit.errors import ConfigError
from fairhit_lab.traces.trace import TraceRow, read_trace

LINE = {"id": "r1", "client": "a", "arrival": 0, "prompt": [["A", 10]], "output_len": 3}


def trace(tmp_path, *lines, name="t.jsonl"):
    """A file of these lines; a dict stands for LINE with its changes."""
    path = tmp_path / name
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))
    return path


def with_ids(*changes):
    return [{**LINE, "id": f"r{n}", **change} for n, change in enumerate(changes, 1)]


def test_a_row_says_what_its_line_says(tmp_path):
    first = {**LINE, "arrival": 1.5, "max_tokens": 9, "weight": 2.5, "cancel_at": 2}
    second = {
        **LINE, "id": "r2", "arrival": 1.5, "prompt": [5, 6, 5], "output": [["B", 2], ["A", 1]],
        "program": "p", "after": ["r1"],
    }  # fmt: skip

    assert list(read_trace(trace(tmp_path, first, second))) == [
        TraceRow(
            id="r1", client="a", arrival_us=1_500_000, prompt=Runs([("A", 0, 10)]), output_len=3,
            max_tokens=9, weight=2_500_000, cancel_us=2_000_000,
        ),
        TraceRow(
            id="r2", client="a", arrival_us=1_500_000, prompt=Runs([((5, 6, 5), 0, 3)]),
            output_len=3, max_tokens=3, output=Runs([("B", 0, 2), ("A", 0, 1)]),
            program="p", after=("r1",),
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0", 0), ("7", 7_000_000), ("0.1", 100_000), ("0.0000005", 1), ("0.0000004999", 0),
        ("1.0000015", 1_000_002), ("1.9999995", 2_000_000), ("1e2", 100_000_000), ("1.5E-6", 2),
        ("1e-999999999", 0),
        ("-0.0", 0), ("99999999999.999999", 99_999_999_999_999_999), ("0.00000049999999999999999999999", 0),
    ],
)  # fmt: skip
def test_seconds_become_microseconds_to_the_digit(tmp_path, text, us):
    """Half up once: 1.0000015 as a float is below the half and would lose a microsecond."""
    line = json.dumps(LINE).replace('"arrival": 0', f'"arrival": {text}')

    assert [row.arrival_us for row in read_trace(trace(tmp_path, line))] == [us]


SECONDS = "seconds from 0 to 100000000000"
TOKENS = "a whole number from 1 to 1000000000"
PROMPT = "token ids or [segment, length] pairs, at least one"
PAIR = "[segment, length from 1 to 1000000000]"
TOKEN = "a token id from 0 to 9223372036854775807"
NAME = "a string that is not empty"
WEIGHT = "a positive number under 10^9 with at most six decimals"


@pytest.mark.parametrize(
    "mistake",
    [
        ("id", 5, "id", NAME, "5"),
        ("id", "", "id", NAME, '""'),
        ("client", None, "client", NAME, "null"),
        ("client", True, "client", NAME, "true"),
        ("arrival", "0", "arrival", SECONDS, '"0"'),
        ("arrival", True, "arrival", SECONDS, "true"),
        ("arrival", -1, "arrival", SECONDS, "-1"),
        ("arrival", -0.5, "arrival", SECONDS, "-0.5"),
        ("arrival", -1e-9, "arrival", SECONDS, "-1e-09"),
        ("arrival", float("nan"), "arrival", SECONDS, "NaN"),
        ("arrival", float("inf"), "arrival", SECONDS, "Infinity"),
        ("arrival", float("-inf"), "arrival", SECONDS, "-Infinity"),
        ("arrival", 1e300, "arrival", SECONDS, "1e+300"),
        ("arrival", 10**12, "arrival", SECONDS, "1000000000000"),
        ("arrival", [0], "arrival", SECONDS, "[0]"),
        ("prompt", [], "prompt", PROMPT, "[]"),
        ("prompt", "text", "prompt", PROMPT, '"text"'),
        ("prompt", {"A": 1}, "prompt", PROMPT, '{"A": 1}'),
        ("prompt", [1, 2.0], "prompt[1]", TOKEN, "2.0"),
        ("prompt", [1, True], "prompt[1]", TOKEN, "true"),
        ("prompt", [1, -2], "prompt[1]", TOKEN, "-2"),
        ("prompt", [1, 2**63], "prompt[1]", TOKEN, str(2**63)),
        ("prompt", [1, ["A", 2]], "prompt[1]", TOKEN, '["A", 2]'),
        ("prompt", [["A", 2], 1], "prompt[1]", PAIR, "1"),
        ("prompt", [["A", 0]], "prompt[0]", PAIR, '["A", 0]'),
        ("prompt", [["A", 2.5]], "prompt[0]", PAIR, '["A", 2.5]'),
        ("prompt", [["A", True]], "prompt[0]", PAIR, '["A", true]'),
        ("prompt", [[1, 2]], "prompt[0]", PAIR, "[1, 2]"),
        ("prompt", [["A", 1, 2]], "prompt[0]", PAIR, '["A", 1, 2]'),
        ("prompt", [["A", 10**10]], "prompt[0]", PAIR, '["A", 10000000000]'),
        ("prompt", [1.5], "prompt[0]", PAIR, "1.5"),
        ("output_len", 0, "output_len", TOKENS, "0"),
        ("output_len", 2.0, "output_len", TOKENS, "2.0"),
        ("output_len", True, "output_len", TOKENS, "true"),
        ("output_len", 10**10, "output_len", TOKENS, "10000000000"),
        ("max_tokens", 2, "max_tokens", "a whole number from 3 to 1000000000", "2"),
        ("output", [1, 2], "output", "output_len = 3 tokens", "2"),
        ("output", [], "output", PROMPT, "[]"),
        ("program", 4, "program", NAME, "4"),
        ("after", "r0", "after", "a list of ids", '"r0"'),
        ("after", [1], "after[0]", NAME, "1"),
        ("after", ["x", "x"], "after", "each id once", '["x", "x"]'),
        ("after", ["r1"], "after[0]", "the id of an earlier line", '"r1"'),
        ("weight", 0, "weight", WEIGHT, "0"),
        ("weight", "2", "weight", WEIGHT, '"2"'),
        ("weight", True, "weight", WEIGHT, "true"),
        ("weight", 0.1234567, "weight", WEIGHT, "0.1234567"),
        ("weight", float("nan"), "weight", WEIGHT, "NaN"),
        ("weight", 1e300, "weight", WEIGHT, "1e+300"),
        ("cancel_at", -1, "cancel_at", SECONDS, "-1"),
        ("cancel_at", None, "cancel_at", SECONDS, "null"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_one_line_with_its_place(tmp_path, mistake):
    field, value, where, expected, got = mistake
    path = trace(tmp_path, {**LINE, field: value})

    with pytest.raises(ConfigError) as error:
        list(read_trace(path))

    assert str(error.value) == f'{path}:1: field "{where}": expected {expected}, got {got}'


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            ["{"],
            "1: malformed JSON: Expecting property name enclosed in double quotes at column 2, got",
        ),
        (["x"], "1: malformed JSON: expected a value at column 1"),
        (["{} x"], "1: malformed JSON: Extra data at column 3, got"),
        (["[" * 100_000], "1: malformed JSON: nested too deeply"),
        (['{"id": ' + "1" * 5000 + "}"], "1: malformed JSON: a number with thousands of digits"),
        (["[1]"], "1: expected a JSON object, got [1]"),
        (["null"], "1: expected a JSON object, got null"),
        (['{"id": "r1", "id": "r2"}'], '1: field "id": expected once, got twice'),
        (
            [{**LINE, "model": "m"}],
            '1: field "model": expected one of id, client, arrival, prompt,',
        ),
        ([{**LINE, "modèle\n": 1}], r'1: field "mod\u00e8le\n": expected one of'),
        (
            [{key: LINE[key] for key in LINE if key != "prompt"}],
            '1: field "prompt": expected a value, got no such field',
        ),
        (with_ids({}, {"id": "r1"}), '2: field "id": expected an id of its own, got "r1"'),
        (
            with_ids({"arrival": 2}, {"arrival": 1.5}),
            '2: field "arrival": expected lines sorted by arrival (the line before',
        ),
        (
            with_ids({}, {"after": ["r3"]}, {}),
            '2: field "after[0]": expected the id of an earlier line',
        ),
        (
            with_ids({"weight": 2}, {}, {"weight": 2.5}),
            '3: field "weight": expected 2 as before for client "a", got 2.5',
        ),
        (
            with_ids({}, {"weight": 4}),
            '2: field "weight": expected no value, as on the first line for client "a", got 4',
        ),
        (
            [{**LINE, "arrival": 3, "cancel_at": 2}],
            '1: field "cancel_at": expected no time before arrival, got 2',
        ),
        ([LINE, "", {**LINE, "id": 5}], '3: field "id": expected a string'),
        ([{**LINE, "id": "\ud800"}], r'1: field "id": expected text, got "\ud800"'),
        ([{**LINE, "client": "a\udfff"}], r'1: field "client": expected text, got "a\udfff"'),
        (
            [{**LINE, "prompt": [["\ud800", 5]]}],
            r'1: field "prompt[0][0]": expected text, got "\ud800"',
        ),
        ([{**LINE, "\ud800": 1}], r'1: field "\ud800": expected text, got "\ud800"'),
        (["\ufeff" + json.dumps(LINE)], "1: expected UTF-8 without a byte-order mark, got one"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, lines, complaint):
    """Blank lines are no rows, but they count, so that the number is the one an editor shows."""
    path = trace(tmp_path, *lines)

    with pytest.raises(ConfigError) as error:
        list(read_trace(path))

    assert str(error.value).startswith(f"{path}:{complaint}")
    assert "\n" not in str(error.value)


def test_both_halves_of_a_pair_are_one_letter(tmp_path):
    """As `json.dumps` writes it by default, here in a client's name."""
    client = "\N{GRINNING FACE}"

    assert [row.client for row in read_trace(trace(tmp_path, {**LINE, "client": client}))] == [
        client
    ]


def test_what_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b'\n{"id": "\xff"}\n')

    with pytest.raises(ConfigError, match=r"t\.jsonl:2: expected UTF-8, got byte 0xff at column 9"):
        list(read_trace(path))


def test_an_equal_weight_may_be_said_again_in_other_words(tmp_path):
    path = trace(tmp_path, *with_ids({"weight": 2}, {"weight": 2.0}, {}))

    assert [row.weight for row in read_trace(path)] == [2_000_000, 2_000_000, None]


def many(count):
    return [{**LINE, "id": f"r{n}", "arrival": n} for n in range(count)]


def pack_zstd(data):
    # Two frames, as concatenated files are.
    half = len(data) // 2
    return b"".join(zstandard.compress(part) for part in (data[:half], data[half:]))


PACKED = [("t.jsonl.gz", gzip.compress), ("t.jsonl.zst", pack_zstd)]


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_packed_files_are_unpacked_by_their_suffix(tmp_path, name, pack):
    plain = trace(tmp_path, *many(5000))
    (tmp_path / name).write_bytes(pack(plain.read_bytes()))

    assert list(read_trace(tmp_path / name)) == list(read_trace(plain))


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_the_error_for_a_packed_file_names_the_missing_suffix(tmp_path, name, pack):
    path = tmp_path / "t.jsonl"
    path.write_bytes(pack(json.dumps(LINE).encode()))
    suffix = name[name.rindex(".") :]

    with pytest.raises(ConfigError, match=rf"t.jsonl:1: packed .*ends in \{suffix}"):
        list(read_trace(path))


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_a_packed_file_that_is_cut_off_is_an_error_not_a_shorter_trace(tmp_path, name, pack):
    whole = pack(trace(tmp_path, *many(5000)).read_bytes())
    (tmp_path / name).write_bytes(whole[:-20])

    with pytest.raises(ConfigError, match=rf"{name}:\d+: expected more, got the end of the packed"):
        list(read_trace(tmp_path / name))


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_a_packed_file_that_is_not_packed_is_an_error(tmp_path, name, pack):
    path = trace(tmp_path, *many(3), name=name)

    with pytest.raises(ConfigError, match=rf"{name}:1: broken (gzip|zstd) data"):
        list(read_trace(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.jsonl: No such file"):
        list(read_trace(tmp_path / "no.jsonl"))
    with pytest.raises(ConfigError, match="Is a directory"):
        list(read_trace(tmp_path))


def test_standard_input_is_read_and_named(monkeypatch):
    lines = json.dumps(LINE) + "\nnot JSON\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    rows = read_trace("-")

    assert next(rows).id == "r1"
    with pytest.raises(ConfigError, match="<stdin>:2: malformed JSON"):
        next(rows)


def test_rows_come_before_the_file_is_read_to_its_end(tmp_path):
    """A trace larger than memory: each row is there as soon as its line is."""
    rows = read_trace(trace(tmp_path, LINE, "not JSON"))

    assert next(rows).id == "r1"


def test_equal_segment_names_are_one_object(tmp_path):
    first, second = read_trace(trace(tmp_path, *many(2)))

    assert first.prompt.runs[0][0] is second.prompt.runs[0][0]
    assert first.client is second.client

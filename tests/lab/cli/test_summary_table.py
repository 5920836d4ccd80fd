"""The table that `fairhit simulate` prints: every number whole, in a window of any width."""

import io
import json

import pytest
from rich.console import Console

from fairhit.cli import main
from fairhit_lab.cli.summary_table import show

LINES = [
    {"id": "1", "client": "a", "arrival": 0, "prompt": [["A", 10], ["x", 5]], "output_len": 3},
    {"id": "2", "client": "b" * 60, "arrival": 9, "prompt": [["B", 10]], "output_len": 2},
]
SMALL = ["--step-time", "linear:1,0,0", "--kv-tokens", "100"]


@pytest.fixture
def report(tmp_path):
    lines = [LINES[0] | {"program": "p"}, LINES[1]]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "s.json"
    assert main(["simulate", str(tmp_path / "t.jsonl"), *SMALL, "--summary", str(out)]) == 0
    return json.loads(out.read_text())


def shown(report, width):
    console = Console(file=io.StringIO(), width=width)
    show(report, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [30, 80, 120])
def test_no_number_is_cut(width, report):
    for client in report["clients"].values():
        client["service"] = {"system": 31_488_123_456.0, "client": 122_880_123_456.0}
        client["ttft"] |= {"p50_s": 12345.678, "p95_s": 23456.789, "p99_s": 34567.891}

    text = shown(report, width)

    assert "…" not in text
    for number in ("31,488,123,456", "122,880,123,456", "12,345.678", "23,456.789", "34,567.891"):
        assert text.count(number) == 2, text


def test_eighty_columns_are_enough(report):
    assert max(map(len, shown(report, 80).splitlines())) <= 80


def test_what_was_asked_for_is_there(report):
    text = shown(report, 120)

    assert "2 refills, 0 tokens evicted, 0 recomputed, idle with work 0.0 s" in text
    for heading in ("first p50", "first p95", "first p99", "done p50", "done p95", "done p99"):
        assert heading in text
    assert "programs, seconds: 1 of 1 are complete" in text
    assert "none, as no two had something waiting in one queue at one time" in " ".join(
        text.split()
    )

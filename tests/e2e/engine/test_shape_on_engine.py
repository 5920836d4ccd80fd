"""The GPU comparison at toy size: a real vLLM with dummy weights, a tree of thoughts and a judge."""

import csv
import json

import pytest
from benchmarks.gpu import engine

pytestmark = pytest.mark.e2e

SETTINGS = [f"tot-s1.{each}" for each in ("clients=2", "branches=2,1", "rates=0.5", "output=6")]


def test_a_scheduler_is_measured_on_a_real_engine(tmp_path, capsys):
    out = tmp_path / "results"

    status = engine.main(
        ["--model", "toy", "--out", str(out), "--policies", "dlpm", "--workloads", "tot-s1",
         "--seconds", "6", "--seeds", "2", "--timeout", "100", "--set", *SETTINGS,
         "--", "--max-num-batched-tokens", "512"]
    )  # fmt: skip

    assert status == 0, capsys.readouterr()
    with (out / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["workload"], row["policy"], row["seed"]) for row in rows] == [
        ("tot-s1", "dlpm", "0"),
        ("tot-s1", "dlpm", "1"),
    ]
    for seed, row in enumerate(rows):
        options = engine.parse(["--out", "x", "--seconds", "6", "--set", *SETTINGS])
        assert int(row["requests"]) == len(engine.trace(options, "tot-s1", seed)) > 3
        # Children continue what the engine said; a block holds 32 tokens.
        assert 0.3 < float(row["hit_rate"]) < 1
        assert float(row["throughput"]) > 0 and 0 < float(row["ttft_p50_s"]) < 60
        assert float(row["ttft_p50_s"]) <= float(row["ttft_p99_s"]) <= float(row["program_p99_s"])
    about = json.loads((out / "about.json").read_text())
    assert about["model"] == "toy" and about["arguments"] == ["--max-num-batched-tokens", "512"]


def test_an_engine_that_does_not_start_is_one_line(tmp_path, capsys):
    status = engine.main(
        ["--model", "toy", "--out", str(tmp_path), "--policies", "fcfs", "--", "--no-such-flag"]
    )

    assert status == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("engine: engine with fcfs cannot run: ")

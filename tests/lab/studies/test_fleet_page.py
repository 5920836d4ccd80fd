"""The README and the page on late binding quote the committed rows of `fleet...` and of real engines."""

import csv
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/late-binding.md"
FLEETS = ("fleet", "fleet + plug-in")
WORKLOADS = 13


@cache
def rows(study: str) -> list[dict[str, str]]:
    path = ROOT / "benchmarks/results/experiments" / study / "rows.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ratios(
    study: str, metric: str, over: Mapping[str, str], under: Mapping[str, str]
) -> list[float]:
    """By workload, the median of the seeds' ratios of two runs' metric."""

    def values(of: Mapping[str, str]) -> dict[tuple[str, str], float]:
        found = (row for row in rows(study) if of.items() <= row.items() and row[metric])
        return {(row["workload"], row["seed"]): float(row[metric]) for row in found}

    tops, bottoms = values(over), values(under)
    by_load: dict[str, list[float]] = {}
    for key in tops.keys() & bottoms.keys():
        by_load.setdefault(key[0], []).append(tops[key] / bottoms[key])
    return [median(each) for each in by_load.values()]


def cell(each: list[float]) -> str:
    return f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def on_page(*cells: str) -> bool:
    return f"| {' | '.join(cells)} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "other", "host", "engines"),
    [
        ("d2lpm", "d2lpm", "sglang", "4"),
        ("d2lpm, extend charged, 65,536 tokens to a worker", "d2lpm (extend)", "sglang", "4"),
        ("the same with as large an overdraft", "d2lpm (overdraft)", "sglang", "4"),
        ("Preble", "preble", "sglang", "4"),
        ("`central-dlpm`", "central-dlpm", "ideal", "4"),
        ("`central-fair`", "central-fair", "ideal", "4"),
        ("d2lpm, extend charged", "d2lpm (extend)", "ideal", "16"),
        ("Preble", "preble", "ideal", "16"),
        ("`central-dlpm`", "central-dlpm", "ideal", "16"),
        ("`central-fair`", "central-fair", "ideal", "16"),
        ("d2lpm, extend charged", "d2lpm (extend)", "ideal", "64"),
        ("Preble", "preble", "ideal", "64"),
        ("`central-fair`", "central-fair", "ideal", "64"),
    ],
)
def test_the_table_of_systems_is_that_of_the_committed_rows(words, other, host, engines):
    cells = [words, f"`{host}`", engines]
    for metric in ("throughput", "light_p99_s"):
        for fleet in FLEETS:
            where = {"host": host, "engines": engines}
            each = ratios("fleet", metric, where | {"policy": fleet}, where | {"policy": other})
            assert len(each) == WORKLOADS
            cells.append(cell(each))

    assert on_page(*cells), cells


@pytest.mark.parametrize(
    ("host", "longest"), [("ideal", "2"), ("ideal", "16"), ("sglang", "2"), ("sglang", "16")]
)
def test_the_table_of_holds_is_that_of_the_committed_rows(host, longest):
    cells = [f"{longest} s", f"`{host}`"]
    for metric in ("throughput", "light_p99_s"):
        for fleet in FLEETS:
            where = {"host": host, "policy": fleet}
            each = ratios(
                "fleet-hold", metric, where | {"longest_hold_s": longest},
                where | {"longest_hold_s": "0"},
            )  # fmt: skip
            assert len(each) == WORKLOADS
            cells.append(cell(each))

    assert on_page(*cells), cells


def test_the_readme_quotes_the_committed_rows():
    where = {"host": "sglang", "engines": "4"}
    sides = where | {"policy": "fleet + plug-in"}, where | {"policy": "d2lpm"}
    more, wait = (median(ratios("fleet", of, *sides)) for of in ("throughput", "light_p99_s"))
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    assert f"it has {more:.2f} times D2LPM's throughput" in readme
    assert f"light tenants wait {wait:.2f} times as long" in readme


def real_fleet():
    """The rows of the run before real engines, the mean of the rounds first in each list."""
    return json.loads((ROOT / "benchmarks/results/real_fleet.json").read_text())["medians"]


def test_the_table_of_real_engines_is_that_of_the_committed_run():
    for row in real_fleet():
        cells = [
            row["system"],
            row["engines"],
            f"{row['requests_per_s']:.1f}",
            f"{row['hit_rate']:.2f}",
        ]
        for tenant in ("heavy", "light", "private"):
            rate, *waits = (
                row[f"{tenant}_{what}"][0]
                for what in ("requests_per_s", "first_token_ms_p50", "first_token_ms_p99")
            )
            cells.append(f"{rate:.1f}, {waits[0]:,.0f} / {waits[1]:,.0f}")

        assert on_page(*cells), cells


def test_the_readme_quotes_the_run_before_real_engines():
    ours, peer = (
        next(row for row in real_fleet() if (row["system"], row["engines"]) == (system, "stock"))
        for system in ("fleet queue, fair", "sglang-router")
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    assert f"it serves {ours['requests_per_s']:.1f} requests/s" in readme
    assert f"sglang-router {peer['requests_per_s']:.1f}" in readme
    waits = [f"{row['light_first_token_ms_p50'][0]:.0f}" for row in (ours, peer)]
    assert f"waits {waits[0]} ms in the median instead of {waits[1]}" in readme

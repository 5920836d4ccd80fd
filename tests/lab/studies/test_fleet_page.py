"""The page on late binding quotes the committed rows of the study `fleet`."""

import csv
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/late-binding.md"
ROWS = ROOT / "benchmarks/results/experiments/fleet/rows.csv"
FLEETS = ("fleet", "fleet + plug-in")


def ratios(host: str, metric: str, fleet: str, other: str) -> list[float]:
    """By workload, before four engines: the median of the seeds' ratios."""
    found: dict[tuple[str, str, str], float] = {}
    with ROWS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["host"], row["engines"]) == (host, "4") and row[metric]:
                found[row["policy"], row["workload"], row["seed"]] = float(row[metric])
    by_load: dict[str, list[float]] = {}
    for (policy, load, seed), value in found.items():
        if policy == fleet and (other, load, seed) in found:
            by_load.setdefault(load, []).append(value / found[other, load, seed])
    return [median(each) for each in by_load.values()]


@pytest.mark.parametrize(
    ("words", "other", "host"),
    [
        ("d2lpm", "d2lpm", "sglang"),
        ("d2lpm, extend charged, 65,536 tokens to a worker", "d2lpm (extend)", "sglang"),
        ("Preble", "preble", "sglang"),
        ("`central-fair`", "central-fair", "ideal"),
    ],
)
def test_the_table_is_that_of_the_committed_rows(words: str, other: str, host: str) -> None:
    cells = [words, f"`{host}`"]
    for metric in ("throughput", "light_p99_s"):
        for fleet in FLEETS:
            each = ratios(host, metric, fleet, other)
            assert len(each) == 13
            cells.append(f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})")

    assert f"| {' | '.join(cells)} |" in PAGE.read_text(encoding="utf-8")

"""Limits of ratios of two systems: what the runs of a figure could have shown, by settings and arrivals.

A system serves no more than its clients ask for, ends no earlier than the last request arrives, and lets no
request wait for longer than the run lasts. Given the other system's number, these limit the ratio.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from random import Random
from typing import Any, NamedTuple

from fairhit_lab.studies.shared.claims import ANY, Rule, could_show
from fairhit_lab.studies.shared.results import Label, ResultRow, Results
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads import GENERATORS

US_PER_S = 10**6
Run = Mapping[str, Label]
OUTPUT_WEIGHT = 2  # of service as clients see it: input + 2 x output


class Asked(NamedTuple):
    """The tokens that clients ask for in a run, and when the last request can start."""

    input_len: int
    output_len: int
    last_s: float


def asked_in(results: Results, row: ResultRow) -> Asked | None:
    """Return what the clients of a run ask for in tokens; None where its settings were not recorded."""
    case = results.settings(row)
    seed = row["seed"]
    if case is None or not isinstance(seed, int) or "workload" not in case.get("source", {}):
        return None
    asked = _generated(json.dumps(case["source"], sort_keys=True), seed)
    stop_s = case.get("stop_s")
    return asked if stop_s is None else asked._replace(last_s=min(asked.last_s, float(stop_s)))


@lru_cache(maxsize=1024)
def _generated(source: str, seed: int) -> Asked:
    """The requests of a generated workload, drawn again. O(requests)."""
    given: dict[str, Any] = json.loads(source)
    input_len, output_len, last_us = 0, 0, 0
    row: TraceRow
    for row in GENERATORS[given["workload"]].rows(Random(seed), **given["settings"]):
        input_len += len(row.prompt)
        output_len += row.output_len
        last_us = max(last_us, row.arrival_us)
    return Asked(input_len, output_len, last_us / US_PER_S)


def most_throughput(
    results: Results, row: ResultRow, output_weight: int = OUTPUT_WEIGHT
) -> float | None:
    """The throughput of a run in which all that is asked for is served when the last request arrives.

    In tokens/s, an output counted `output_weight` times; None where the settings were not recorded.
    """
    asked = asked_in(results, row)
    if asked is None or not asked.last_s:
        return None
    return (asked.input_len + output_weight * asked.output_len) / asked.last_s


def throughput_ratio(results: Results, over: Run, under: Run) -> Rule | None:
    """Return the range of a ratio of throughputs, given the one below the line; None: settings unknown."""
    bases = results.values("throughput", **under)
    caps = [
        most / bases[seed]
        for row in _rows(results, over)
        for seed in [row["seed"]]
        if isinstance(seed, int) and bases.get(seed)
        if (most := most_throughput(results, row))
    ]
    return could_show(0, max(caps)) if caps else None


def ends_ratio(results: Results, over: Run, under: Run) -> Rule | None:
    """Return the range of a ratio of times from end to end, given the one below the line: no upper end."""
    bases = results.values("makespan_s", **under)
    ends = [
        asked.last_s / bases[seed]
        for row in _rows(results, over)
        for seed in [row["seed"]]
        if isinstance(seed, int) and bases.get(seed)
        if (asked := asked_in(results, row))
    ]
    return could_show(min(ends), inf) if ends else None


def waits_ratio(results: Results, metric: str, over: Run, under: Run) -> Rule | None:
    """Return the range of a ratio of waits, given the one below the line: up to a wait of the whole run."""
    lasts, base = results.interval("makespan_s", **over), results.interval(metric, **under)
    return could_show(0, lasts.high / base.low) if lasts.seeds and base.seeds and base.low else None


def ratio_limits(results: Results, metric: str, over: Run, under: Run) -> Rule | None:
    """Return the range of a ratio of two runs' measures, given the one below the line; None without it.

    A wait (`..._s`) lasts to the stop at most, Jain's index is 1 at most; others have no upper end.
    """
    bases = [value for value in results.values(metric, **under).values() if value]
    if not bases:
        return None
    if metric == "throughput":
        return throughput_ratio(results, over, under) or ANY
    if metric.endswith("_s"):
        stops = [
            float(case["stop_s"])
            for row in _rows(results, over)
            if (case := results.settings(row)) and "stop_s" in case
        ]
        return could_show(0, max(stops) / min(bases)) if stops else ANY
    return could_show(0, 1 / min(bases)) if metric.startswith("jain") else ANY


def _rows(results: Results, of: Run) -> list[ResultRow]:
    return [row for row in results.rows if all(row[name] == label for name, label in of.items())]

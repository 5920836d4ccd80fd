"""Runs as a study states them, and those in which one thing that the paper leaves unstated is varied.

The label `variant` tells them apart.
"""

from collections.abc import Iterable, Mapping

from fairhit_lab.studies.shared.results import Interval, Label, Results

STATED = "stated"
Run = Mapping[str, Label]


def ratios(
    results: Results, metric: str, over: Run, under: Run, variants: Iterable[str]
) -> dict[str, Interval]:
    """One run's number in the other's by setting, where at least one of them has that setting.

    The other is then as stated: what is varied does not concern it.
    """
    found = {}
    for variant in variants:
        sides = [_in_setting(results, of, variant) for of in (over, under)]
        if any(side["variant"] == variant for side in sides):
            found[variant] = results.ratio(metric, *sides)
    return found


def _in_setting(results: Results, of: Run, variant: str) -> dict[str, Label]:
    own: dict[str, Label] = {**of, "variant": variant}
    has = any(all(row[name] == label for name, label in own.items()) for row in results.rows)
    return own if has else {**own, "variant": STATED}


def spelled(results: Results, metric: str, runs: Mapping[str, Run], unit: str = "") -> str:
    """Each run's number behind its name, for the reason of a verdict: "D2LPM 0.88, VTC 0.63"."""
    return ", ".join(f"{name} {results.interval(metric, **of)}{unit}" for name, of in runs.items())

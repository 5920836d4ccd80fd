"""The DLPM paper's systems and GPUs, runs as stated and varied, and the clients' curves over time.

The label `variant` is "stated" for runs as a study states them; other values name the one setting that
is varied because the paper leaves it unstated.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairhit_lab.studies.shared.claims import Rule, could_show, jain_of
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results

# In the figures' order. VTC and LPM are one engine's schedulers; in front of several, clients are
# spread one by one (VTC) or requests are (LPM, SGLang's default then).
DLPM_SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "d2lpm": {"scheduler": "dlpm", "router": "d2lpm"},
    "rr+lpm": {"scheduler": "lpm", "router": "round-robin"},
    "preble": {"scheduler": "preble-groups", "router": "preble"},
    "vtc": {"scheduler": "vtc", "router": "client-round-robin"},
}

# Beyond the paper, in every figure: the policy `fair`, and in front of several engines the gateway's queue.
FLEET = "fleet"
FAIR: Mapping[str, Any] = {"scheduler": "fair"}
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    **DLPM_SYSTEMS,
    FLEET: {**FAIR, "router": "fleet", "engine_scheduler": "fair"},
}
# What each study says of them.
BESIDE_ONE = "`fair` is beyond the paper: what this project adds, in no claim of the paper's."
BESIDE = (
    "`fleet` is beyond the paper: one queue under `fair` before engines with the plug-in, in no claim of the"
    " paper's."
)

NAMES = {"d2lpm": "D2LPM", "rr+lpm": "RR+LPM", "preble": "Preble", "vtc": "VTC"}

# Preble as the DLPM paper describes it (section 7.1): to the longest match above a threshold, whatever
# waits there, else to the least loaded engine; no weighing of loads, no moving of prefixes.
PREBLE_BY_THRESHOLD: Mapping[str, Any] = {
    "scheduler": "preble-groups",
    "router": "d2lpm",
    "worker_quantum": 10**9,
}

# The same by a ratio of the prompt: a match counts if it is half of it.
PREBLE_BY_RATIO: Mapping[str, Any] = {"scheduler": "preble-groups", "router": "preble-ratio"}

# GPUs and models of the paper's figures. An A10G has 129,000 tokens of KV beside the smaller model and
# 39,000 beside the larger one, where prefixes push each other out.
ON_A10G = {"step_time": "a10g:llama-3.2-3b"}
ON_A10G_8B = {"step_time": "a10g:llama-3.1-8b"}
ON_A100 = {"step_time": "a100:llama-3.1-8b"}


STATED = "stated"
Run = Mapping[str, Label]


def ratios(
    results: Results, metric: str, over: Run, under: Run, variants: Iterable[str]
) -> dict[str, Interval]:
    """Ratios of two runs' metric by setting, where at least one of the runs has that setting.

    The other is then taken as stated: what is varied does not concern it.
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


def within_run(results: Results, of: Run) -> Rule:
    """What a wait could be: no request waits longer than the run lasts, in seconds."""
    return could_show(0, results.interval("makespan_s", **of).high)


def jain_ratio(results: Results, metric: str, under: Run, clients: int) -> Rule:
    """What a ratio of Jain's indices could be, given the one below the line."""
    base = results.interval(metric, **under)
    possible = jain_of(clients)
    return could_show(possible.low / base.high, possible.high / base.low)


def spelled(results: Results, metric: str, runs: Mapping[str, Run], unit: str = "") -> str:
    """The metric of each run after its name, for the reason of a verdict: "D2LPM 0.88, VTC 0.63"."""
    return ", ".join(f"{name} {results.interval(metric, **of)}{unit}" for name, of in runs.items())


def on_ideal(settings: Mapping[str, Any], *, skips: bool) -> dict[str, Any]:
    """Settings of a system, on the ideal engine unless they name another host.

    `skips`: on the ideal engine its passes skip up to 32 requests that do not fit, which bounds their time.
    """
    own = {"host": "ideal", **settings}
    return own | ({"max_misfits": 32} if skips and own["host"] == "ideal" else {})


# Series of docs/reference/summary.md: title, and axis label with its unit.
CURVES = {
    "response_time": ("Response time", "seconds to the first token"),
    "service_system": ("Actual service", "extend + 2 x output, tokens/s"),
    "service_client": ("Service", "input + 2 x output, tokens/s"),
}


def over_time(metrics: Iterable[str], systems: Mapping[str, Mapping[str, Label]]) -> list[Panel]:
    """Panels of the clients' curves, one per metric and system; `systems` has the runs' labels by name."""
    return [
        Panel(
            title=f"{CURVES[metric][0]}: {system}",
            form="lines",
            of="series",
            x="time_s",
            y=metric,
            hue="client",
            where=labels,
            x_label="time, s",
            y_label=CURVES[metric][1],
        )
        for metric in metrics
        for system, labels in systems.items()
    ]

"""`fairhit experiment calibrate`: fits a GPU's constants to a CSV of measured passes.

The fit moves the seven constants of the roofline until the mean error of its passes is least, each
phase counting the same, and names the constants that the passes do not determine.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fairhit.errors import ConfigError, in_words
from fairhit_lab.calibration.measured_passes import PHASES, MeasuredPass, read_passes
from fairhit_lab.calibration.simplex import least
from fairhit_lab.sim.hardware.models import Gpu, TransformerModel
from fairhit_lab.sim.hardware.step_time import PS_PER_S, Roofline
from fairhit_lab.sim.hardware.tables import BUILT_IN, read_constants

# Bounds of each constant, and the length of the first step.
BOUNDS = {
    "e_w": (0.3, 0.97, 0.05),
    "e_f": (0.3, 0.97, 0.05),
    "e_kv": (0.3, 0.97, 0.1),
    "e_a": (0.2, 0.97, 0.1),
    "t0_ms": (0.0, 20.0, 1.0),
    "g_us": (0.0, 1000.0, 50.0),
    "p": (1.2, 16.0, 1.0),
}
# The loss has several minima in the knee: the fit starts from each of these.
KNEES = (2.0, 4.0, 12.0)
ROUNDS = 400
# A relative change of the passes' times that measurements would hardly show.
PINNED = 0.003


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """Relative errors of one phase: the number of passes, the mean and the 90th percentile."""

    passes: int
    mean: float
    p90: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The constants found, and those of them that the passes do not determine."""

    gpu: Gpu
    before: dict[str, Quality]
    after: dict[str, Quality]
    unidentified: list[str]


def errors(
    gpu: Gpu, model: TransformerModel, passes: Sequence[MeasuredPass]
) -> dict[str, list[float]]:
    """Absolute relative errors of the passes, by phase."""
    found: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for each, seconds in zip(passes, _seconds(gpu, model, passes), strict=True):
        found[each.phase].append(abs(seconds / each.seconds - 1))
    return {phase: of for phase, of in found.items() if of}


def _seconds(gpu: Gpu, model: TransformerModel, passes: Sequence[MeasuredPass]) -> list[float]:
    """The seconds of each pass by the model, without an engine's CPU time (the measured ones include it)."""
    step_time = Roofline(replace(gpu, host_us=0.0, admit_ms=0.0), model, host_ms=0.0)
    return [step_time.pass_ps(each.work) / PS_PER_S for each in passes]


def quality(
    gpu: Gpu, model: TransformerModel, passes: Sequence[MeasuredPass]
) -> dict[str, Quality]:
    """The errors of these constants, by phase."""
    return {
        phase: Quality(passes=len(of), mean=fmean(of), p90=_quantile(of, 0.9))
        for phase, of in errors(gpu, model, passes).items()
    }


def _quantile(values: Sequence[float], share: float) -> float:
    """A quantile, interpolated between the two nearest values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def fit(start: Gpu, model: TransformerModel, passes: Sequence[MeasuredPass]) -> Fit:
    """Fit the constants, searching from `start`; fields that are no constant of the fit stay.

    Takes seconds.
    """

    def loss(point: Sequence[float], power: int) -> float:
        gpu, outside = _gpu_at(start, point)
        found = errors(gpu, model, passes).values()
        return outside + sum(fmean(error**power for error in of) for of in found)

    steps = [step for _, _, step in BOUNDS.values()]
    tried = []
    for knee in KNEES:
        point = [knee if name == "p" else getattr(start, name) for name in BOUNDS]
        # Squared errors first: they are smooth. Then the reported error, on which outliers have less effect.
        point, _ = least(lambda at: loss(at, 2), point, steps, rounds=ROUNDS)
        near = [step / 4 for step in steps]
        tried.append(least(lambda at: loss(at, 1), point, near, rounds=ROUNDS))
    best, _ = min(tried, key=lambda each: each[1])
    gpu = _rounded(_gpu_at(start, best)[0])
    return Fit(
        gpu=gpu,
        before=quality(start, model, passes),
        after=quality(gpu, model, passes),
        unidentified=unidentified(gpu, model, passes),
    )


def _gpu_at(start: Gpu, point: Sequence[float]) -> tuple[Gpu, float]:
    """The constants at a point, clipped to the bounds, and the distance of the point from the bounds."""
    inside: dict[str, Any] = {}
    outside = 0.0
    for (name, (low, high, step)), value in zip(BOUNDS.items(), point, strict=True):
        inside[name] = min(max(value, low), high)
        outside += abs(value - inside[name]) / step
    return replace(start, host_ms=0.0, host_us=0.0, admit_ms=0.0, **inside), outside


def _rounded(gpu: Gpu) -> Gpu:
    return replace(gpu, **{name: round(getattr(gpu, name), 4) for name in BOUNDS})


def unidentified(gpu: Gpu, model: TransformerModel, passes: Sequence[MeasuredPass]) -> list[str]:
    """The constants at a bound, and those whose move the others could compensate.

    Linearised: what a move by a tenth of its range does to the passes, less what the best moves of
    the others do, is smaller than PINNED in the mean square.
    """

    def moved(name: str, change: float) -> Any:
        low, high, _ = BOUNDS[name]
        value = min(max(getattr(gpu, name) + change * (high - low), low), high)
        other = replace(gpu, **{name: value})
        return np.array(_seconds(other, model, passes)), (value - getattr(gpu, name)) / (high - low)

    here = np.array(_seconds(gpu, model, passes))
    columns = []
    for name in BOUNDS:
        (above, up), (below, down) = moved(name, 0.02), moved(name, -0.02)
        columns.append(0.1 * (above - below) / (up - down) / here)
    slopes = np.stack(columns, axis=1)
    free = []
    for place, (name, (low, high, _)) in enumerate(BOUNDS.items()):
        others = np.delete(slopes, place, axis=1)
        answer = np.linalg.lstsq(others, slopes[:, place], rcond=None)[0]
        left = slopes[:, place] - others @ answer
        if not low < getattr(gpu, name) < high or float(np.sqrt(np.mean(left**2))) < PINNED:
            free.append(name)
    return free


def as_yaml(name: str, gpu: Gpu) -> str:
    """The constants as a file for `--constants`."""
    row = {
        item.name: getattr(gpu, item.name)
        for item in fields(Gpu)
        if getattr(gpu, item.name) is not None
    }
    return "\n".join(["gpus:", f"  {name}:", *(f"    {key}: {row[key]}" for key in row), ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `calibrate`."""
    parser.add_argument(
        "csv", metavar="CSV", help="measured passes: phase,batch,tokens,context,seconds"
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="model that was measured")
    parser.add_argument(
        "--gpu", default="a10g", metavar="NAME",
        help="GPU that gives memory, bandwidth and peak, and the starting point of the fit (a10g)",
    )  # fmt: skip
    parser.add_argument(
        "--sms", type=int, metavar="N",
        help="number of multiprocessors, for whole waves of tiles; 0: a straight line (the GPU's)",
    )  # fmt: skip
    parser.add_argument("--constants", metavar="YAML", help="file with more GPUs and models")
    parser.add_argument("--out", metavar="YAML", help="file for the fitted row")


def run(options: argparse.Namespace, console: Console) -> int:
    """Fit, show and write the constants. Returns the exit status. Raises ConfigError."""
    constants = read_constants(Path(options.constants)) if options.constants else BUILT_IN
    for kind, name, known in (
        ("gpu", options.gpu, constants.gpus),
        ("model", options.model, constants.models),
    ):
        if name not in known:
            raise ConfigError(f"--{kind}: expected one of {', '.join(sorted(known))}, got {name!r}")
    start = constants.gpus[options.gpu]
    if options.sms is not None:
        if options.sms < 0:
            raise ConfigError(f"--sms: expected a whole number from 0, got {options.sms}")
        start = replace(start, sms=options.sms or None)
    passes = read_passes(Path(options.csv))
    with console.status(f"fitting {len(BOUNDS)} constants to {len(passes)} passes"):
        found = fit(start, constants.models[options.model], passes)
    show(found, console)
    if options.out:
        try:
            Path(options.out).write_text(as_yaml(options.gpu, found.gpu), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out: {in_words(error)}") from None
    return 0


def show(found: Fit, console: Console) -> None:
    """Print the constants, the errors of each phase before and after, and the unidentified constants."""
    console.print(as_yaml("fitted", found.gpu), highlight=False, end="")
    table = Table(box=None)
    for heading in ("phase", "passes", "mean before", "p90 before", "mean after", "p90 after"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for phase, after in found.after.items():
        before = found.before[phase]
        shares = (before.mean, before.p90, after.mean, after.p90)
        table.add_row(phase, str(after.passes), *(f"{share:.1%}" for share in shares))
    console.print(table)
    if found.unidentified:
        names = ", ".join(found.unidentified)
        console.print(f"not identified by these passes: {names}", highlight=False)

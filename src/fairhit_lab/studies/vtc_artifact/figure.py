"""The figure of the VTC calibration: the time of a pass by its tokens, and latencies of a ramp."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairhit.errors import ConfigError, in_words
from fairhit_lab.calibration.measured_passes import MeasuredPass, read_passes
from fairhit_lab.metrics.vtc_table import Row, served
from fairhit_lab.sim.engines.interface import Pass
from fairhit_lab.sim.hardware.models import GPUS, MODELS, Gpu
from fairhit_lab.sim.hardware.step_time import PS_PER_S, Roofline

PROFILE = "vtc_measured/cost_profile_a10g_llama2_7b.csv"
RAMP = "increase/FCFS"
MOST_TOKENS = 1200
MS = 1000
MEASURED, SIMULATED, EARLIER = "#444444", "#0072b2", "#d55e00"
# The x and y values of a line or of points.
Series = tuple[Sequence[float], Sequence[float]]


def save_figure(path: Path, data: Path, measured: Sequence[Row], simulated: Sequence[Row]) -> None:
    """Draw the figure; `measured` and `simulated` are rows of the ramp. Raises ConfigError."""
    gpu = replace(GPUS["a10g-2024"], host_us=0.0, admit_ms=0.0)
    passes = [
        each
        for each in read_passes(data / PROFILE)
        if each.work.extend_len + each.work.decodes <= MOST_TOKENS
    ]
    _draw(
        path,
        curve=_curve(gpu),
        straight=_curve(replace(gpu, sms=None)),
        points={
            f"measured, {phase}": _points(gpu, [each for each in passes if each.phase == phase])
            for phase in ("decode", "prefill")
        },
        ramp={"measured": _latencies(measured), "simulated": _latencies(simulated)},
    )


def _time(gpu: Gpu) -> Roofline:
    return Roofline(gpu, MODELS["llama-2-7b"], host_ms=0.0)


def _curve(gpu: Gpu) -> Series:
    """The time of passes of one token per sequence, without any context."""
    step_time = _time(gpu)
    tokens = range(1, MOST_TOKENS + 1)
    return tokens, [
        MS * step_time.pass_ps(Pass(chunks=1, extend_len=each)) / PS_PER_S for each in tokens
    ]


def _points(gpu: Gpu, passes: Sequence[MeasuredPass]) -> Series:
    """Measured passes, less the time of their attention and sequences by the model."""
    step_time = _time(gpu)
    tokens, times = [], []
    for each in passes:
        computed = each.work.extend_len + each.work.decodes
        alone = Pass(chunks=1, extend_len=computed)
        beside = (step_time.pass_ps(each.work) - step_time.pass_ps(alone)) / PS_PER_S
        tokens.append(computed)
        times.append(MS * (each.seconds - beside))
    return tokens, times


def _latencies(rows: Sequence[Row]) -> Series:
    kept = served(rows)
    return [row.arrival_s for row in kept], [row.first_token_s - row.arrival_s for row in kept]


def _draw(
    path: Path,
    *,
    curve: Series,
    straight: Series,
    points: dict[str, Series],
    ramp: dict[str, Series],
) -> None:
    """Draw the time of a pass by its tokens, and the ramp's time to the first token by arrival.

    Milliseconds and tokens; seconds and seconds. Raises ConfigError.
    """
    figure, (left, right) = _panels("Passes are staircases", "Fig. 9's ramp under FCFS")
    left.plot(*curve, color=SIMULATED, label="whole waves of tiles")
    left.plot(*straight, color=EARLIER, linestyle="--", label="straight line")
    for (name, series), marker in zip(points.items(), "ox", strict=True):
        left.plot(*series, marker, color=MEASURED, label=name)
    left.set(xlabel="tokens computed in a pass", ylabel="ms, less attention")
    # Both lie upon each other, so the lower one is wide.
    for (name, series), style in zip(
        ramp.items(), ((MEASURED, 7, 0.3), (SIMULATED, 2, 1)), strict=True
    ):
        colour, size, alpha = style
        right.plot(
            *series, "o", markersize=size, markeredgewidth=0, color=colour, alpha=alpha, label=name
        )
    right.set(xlabel="arrival, s", ylabel="time to the first token, s")
    for axes in (left, right):
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--figure: {in_words(error)}") from None
    except ValueError:  # matplotlib's error for an unknown suffix
        raise ConfigError(f"--figure: expected .svg, .png or .pdf, got {path.name!r}") from None


def _panels(*titles: str) -> tuple[Any, Any]:
    """A figure with a panel per title, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(titles), 3.6), layout="constrained")
    panels = figure.subplots(1, len(titles))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels

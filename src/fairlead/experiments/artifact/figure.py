"""What the figure of the VTC calibration shows: the staircase of passes, and a ramp."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.experiments.constants.measured_passes import MeasuredPass, read_passes
from fairlead.experiments.figures.plot import Series, save_calibration
from fairlead.metrics.vtc_table import Row, served
from fairlead.sim.host import Pass
from fairlead.sim.models import GPUS, MODELS, Gpu
from fairlead.sim.step_time import PS_PER_S, Roofline

PROFILE = "vtc_measured/cost_profile_a10g_llama2_7b.csv"
RAMP = "increase/FCFS"
MOST_TOKENS = 1200
MS = 1000


def save_figure(path: Path, data: Path, measured: Sequence[Row], simulated: Sequence[Row]) -> None:
    """`measured` and `simulated` are of the ramp. Raises ConfigError."""
    gpu = replace(GPUS["a10g-2024"], host_us=0.0, admit_ms=0.0)
    passes = [
        each
        for each in read_passes(data / PROFILE)
        if each.work.extend_len + each.work.decodes <= MOST_TOKENS
    ]
    save_calibration(
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
    """Passes of one token per sequence, with nothing in memory."""
    step_time = _time(gpu)
    tokens = range(1, MOST_TOKENS + 1)
    return tokens, [
        MS * step_time.pass_ps(Pass(chunks=1, extend_len=each)) / PS_PER_S for each in tokens
    ]


def _points(gpu: Gpu, passes: Sequence[MeasuredPass]) -> Series:
    """Measured passes less what their attention and their sequences take by the model."""
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

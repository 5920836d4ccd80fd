"""`fairhit experiment vtc-calibration`: the VTC artifact's runs, measured and simulated.

Each run's requests go through the simulator with the artifact's engine and its scheduler, and the
result is compared with what the artifact's authors measured. No constant belongs to a run: all are of
the engine and the GPU (docs/reference/step-time.md).
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fairhit.errors import ConfigError
from fairhit.local import provenance
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.hardware.models import Gpu
from fairhit_lab.sim.hardware.tables import BUILT_IN, Constants
from fairhit_lab.studies.shared.data_folder import data_folder
from fairhit_lab.studies.vtc_artifact import cross_validation, repeatability
from fairhit_lab.studies.vtc_artifact.comparison import (
    Comparison,
    agreement,
    numbers_of,
    record,
    show,
    write,
)
from fairhit_lab.studies.vtc_artifact.figure import RAMP, save_figure
from fairhit_lab.studies.vtc_artifact.replay import ENGINE, JITTER, ON_A10G, US_PER_S, replayed
from fairhit_lab.studies.vtc_artifact.runs import REQUESTS, MeasuredRun, read_runs
from fairhit_lab.traces.importers.format import lengths_only

SCHEDULERS = {
    "FCFS": "fcfs",
    "VTC": "vtc",
    "WVTC": "vtc",
    "LCF": "lcf",
    "VTC_oracle": "vtc-oracle",
    "VTC_pred50": "vtc-noisy",
}
WEIGHTED = {f"c{client}": client + 1 for client in range(4)}  # of WVTC
ON_A100 = "a100-2024:llama-2-13b"
A100_PREFIX = "llama13b_a100_"  # then the pool, and the length of the requests

COMMAND = "fairhit experiment vtc-calibration"
KNOWN = (*SCHEDULERS, "RPM<limit>")


class UnknownScheduler(ConfigError):
    """A run under a scheduler that is not simulated here."""


def gpu_of(run: MeasuredRun) -> str:
    """The GPU of a run, by its workload's name."""
    return "a100-2024" if run.workload.startswith(A100_PREFIX) else "a10g-2024"


# A few seconds together: one run of each kind.
QUICK = ("overload/FCFS", "increase/FCFS", "increase/VTC", "real/VTC", "real/RPM5", "real/RPM20")


def settings(
    run: MeasuredRun, *, jitter: float = 0.0, seed: int = 0, constants: Constants = BUILT_IN
) -> SimConfig:
    """The artifact's engine on the run's GPU, with the run's scheduler. Raises ConfigError."""
    limited = re.fullmatch(r"RPM([1-9]\d{0,8})", run.scheduler, re.ASCII)
    if limited is None and run.scheduler not in SCHEDULERS:
        raise UnknownScheduler(
            f"{run.name}: unknown scheduler {run.scheduler!r}; known: {', '.join(KNOWN)}"
        )
    gpu = ON_A10G
    if gpu_of(run) != "a10g-2024":
        pool = run.workload.removeprefix(A100_PREFIX).partition("_")[0]
        if not re.fullmatch(r"[1-9]\d{0,8}", pool, re.ASCII):
            raise ConfigError(f"{run.name}: expected {A100_PREFIX}<KV tokens>_<length>")
        gpu = {"step_time": ON_A100, "kv_tokens": int(pool)}
    return SimConfig(
        scheduler="rpm" if limited else SCHEDULERS[run.scheduler],
        rpm_limit=int(limited[1]) if limited else None,
        weights=WEIGHTED if run.scheduler == "WVTC" else {},
        jitter=jitter,
        seed=seed,
        constants=constants,
        **ENGINE,
        **gpu,
    )


def simulated(
    run: MeasuredRun, *, jitter: float = 0.0, seed: int = 0, constants: Constants = BUILT_IN
) -> list[Row]:
    """The run's requests through the simulator, as their callers would have seen them."""
    calls = [
        lengths_only(
            str(number),
            client=f"c{each.client}",
            at_us=round(each.t_s * US_PER_S),
            input_len=each.input_len,
            output_len=each.output_len,
        )
        for number, each in enumerate(run.requests)
    ]
    return replayed(calls, settings(run, jitter=jitter, seed=seed, constants=constants))


def compare(run: MeasuredRun, seeds: Sequence[int] = ()) -> Comparison:
    """Compare a run, and its spread over the seeds. Raises ConfigError if no request was served."""
    return Comparison(
        name=run.name,
        requests=len(run.requests),
        measured=numbers_of(run.rows(), f"{run.name}, measured"),
        simulated=numbers_of(simulated(run), f"{run.name}, simulated"),
        jittered=[
            numbers_of(simulated(run, jitter=JITTER, seed=seed), f"{run.name}, seed {seed}")
            for seed in seeds
        ],
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `vtc-calibration`."""
    parser.add_argument("--data", metavar="DIR", help="workload data (FAIRHIT_DATA)")
    parser.add_argument("--quick", action="store_true", help="six runs, without the seeds")
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="N",
        help="runs with jittered passes (3); --cross-validate compares their median",
    )
    parser.add_argument(
        "--cross-validate",
        action="store_true",
        help="instead, fit the host's constants without each run in turn and simulate that run",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose name has it")
    parser.add_argument("--out", metavar="FILE", help="also write the numbers there, as JSON")
    parser.add_argument(
        "--figure", metavar="FILE", help="draw the passes and a ramp there (.svg, .png, .pdf)"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Compare all runs; after Ctrl-C show those that are done.

    Returns the exit status. Raises ConfigError.
    """
    if options.seeds < 0:
        raise ConfigError(f"--seeds: expected a whole number from 0, got {options.seeds}")
    for flag in ("out", "figure"):
        path = getattr(options, flag)
        if path and not Path(path).absolute().parent.is_dir():
            raise ConfigError(f"--{flag}: there is no folder {Path(path).parent}")
    data = data_folder(options.data, REQUESTS)
    every = read_runs(data)
    runs = _selected(every, options, data / REQUESTS, console)
    about = provenance.of_this_run()
    seeds = [] if options.quick else range(1, options.seeds + 1)
    if options.cross_validate:
        found = _cross_validated(runs, seeds, console)
        if options.out:
            own = {"command": f"{COMMAND} --cross-validate", **about, "seeds": len(seeds)}
            write(options.out, {**own, **found})
        return 0
    done: list[Comparison] = []
    interrupted = False
    try:
        _compare_all(runs, seeds, console, done)
    except KeyboardInterrupt:
        interrupted = True
    if done:
        show(done, agreement(done), console)
        if options.out:
            own = {"command": COMMAND, **about, "interrupted": interrupted}
            write(options.out, {**own, **record(done, agreement(done))})
    if options.figure and not interrupted:
        _draw(Path(options.figure), data, every)
    return 130 if interrupted else 0


def _selected(
    every: Sequence[MeasuredRun], options: argparse.Namespace, path: Path, console: Console
) -> list[MeasuredRun]:
    """The runs to compare; one line names those whose scheduler is not known here. Raises ConfigError."""
    named = [each for each in every if options.only in each.name]
    if not named:
        raise ConfigError(f"--only: no run has {options.only!r} in its name")
    if options.quick:  # a folder of other runs has none of these
        named = [each for each in named if each.name in QUICK] or named[: len(QUICK)]
    runs, unknown = [], []
    for each in named:  # bad names are reported before minutes of simulation
        try:
            settings(each)
        except UnknownScheduler as error:
            unknown.append((each.name, error))
            continue
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        runs.append(each)
    if not runs:
        raise ConfigError(f"{path}: {unknown[0][1]}")
    if unknown:
        names = ", ".join(name for name, _ in unknown)
        known = ", ".join(KNOWN)
        console.print(
            f"left out, as their scheduler is unknown: {names} (known: {known})",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return runs


# What is left out at a time: one run, or all runs of one workload, which are alike.
FOLDS: Mapping[str, Callable[[MeasuredRun], str]] = {
    "by run": lambda run: run.name,
    "by workload": lambda run: run.workload,
}


def _middle_of(seeds: Sequence[int]) -> cross_validation.Simulate:
    """Simulate with each seed and return the median, or once and without jitter if there is none."""
    draws = [(JITTER, seed) for seed in seeds] or [(0.0, 0)]
    known: dict[tuple[str, Gpu], cross_validation.Values] = {}

    def simulate(run: MeasuredRun, constants: Constants) -> cross_validation.Values:
        key = (run.name, constants.gpus[gpu_of(run)])
        if key not in known:  # workloads of one run are the same fold twice
            known[key] = cross_validation.middle(
                [
                    numbers_of(
                        simulated(run, jitter=jitter, seed=seed, constants=constants),
                        f"{run.name}, simulated",
                    )
                    for jitter, seed in draws
                ]
            )
        return known[key]

    return simulate


def _cross_validated(
    runs: Sequence[MeasuredRun], seeds: Sequence[int], console: Console
) -> dict[str, Any]:
    """Fit without each fold in turn, show the errors and return them. Raises ConfigError."""
    from rich.progress import Progress

    simulate = _middle_of(seeds)
    found: dict[str, list[cross_validation.LeftOut]] = {name: [] for name in FOLDS}
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("runs", total=(1 + len(FOLDS)) * len(runs))
        for gpu in cross_validation.FITTED:
            seen = []
            for each in runs:
                if gpu_of(each) == gpu:
                    bar.update(task, description=each.name)
                    measured = numbers_of(each.rows(), f"{each.name}, measured")
                    seen.append(cross_validation.sensitivity(each, gpu, measured, simulate))
                    bar.advance(task)
            for name, fold_of in FOLDS.items() if seen else ():
                found[name] += cross_validation.left_out(
                    gpu, seen, simulate, fold_of, lambda _: bar.advance(task)
                )
    if not found["by run"]:
        raise ConfigError("--cross-validate: too few runs of one GPU to leave one out")
    for name, runs_left_out in found.items():
        if runs_left_out:
            cross_validation.show(name, runs_left_out, console)
    repeated = repeatability.of(found["by run"])
    if repeated:
        repeatability.show(repeated, console)
    return {
        **{name: cross_validation.record_of(of) for name, of in found.items() if of},
        "repeated": repeated and repeatability.record_of(repeated),
    }


def _draw(path: Path, data: Path, runs: Sequence[MeasuredRun]) -> None:
    """Draw the figure. Raises ConfigError if the ramp is not among the runs."""
    ramp = next((each for each in runs if each.name == RAMP), None)
    if ramp is None:
        raise ConfigError(f"--figure: shows {RAMP}, which is not among the runs")
    save_figure(path, data, ramp.rows(), simulated(ramp))


def _compare_all(
    runs: Sequence[MeasuredRun], seeds: Sequence[int], console: Console, done: list[Comparison]
) -> None:
    """Compare each run and append it to `done`, with a progress bar on the terminal."""
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("runs", total=len(runs))
        for each in runs:
            bar.update(task, description=each.name)
            done.append(compare(each, seeds))
            bar.advance(task)

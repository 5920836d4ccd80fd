"""`fairlead simulate`: a trace in, events and a summary out, the same bytes for the same seed."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.cli.values import count, integer, microseconds, whole
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.sim.config import Change


def add(commands: Any) -> None:
    """The command and its flags."""
    parser = commands.add_parser("simulate", help="a trace through simulated engines")
    parser.add_argument("trace", metavar="TRACE", help="JSONL, also .gz and .zst; - is stdin")
    parser.add_argument("--events", metavar="FILE", help="write every event there, as JSONL")
    parser.add_argument("--summary", metavar="FILE", help="write the summary there, as JSON")
    parser.add_argument("--seed", type=integer, default=0, help="of all that is drawn (0)")
    parser.add_argument(
        "--no-skip", action="store_true", help="step through like passes one by one"
    )

    _add_cluster(parser.add_argument_group("cluster"))
    _add_engine(parser.add_argument_group("engine"))
    _add_scheduler(parser.add_argument_group("scheduler"))
    parser.set_defaults(run=run)


def _add_cluster(cluster: Any) -> None:
    from fairlead.routers import LATE_ROUTERS, ROUTERS

    cluster.add_argument("--replicas", type=count, default=1, metavar="N", help="engines (1)")
    cluster.add_argument(
        "--router",
        choices=[*ROUTERS, *LATE_ROUTERS],
        default="d2lpm",
        help="who chooses the engine of a request (d2lpm)",
    )
    cluster.add_argument(
        "--worker-quantum", type=count, metavar="TOKENS", help="Q^w of D2LPM (16384)"
    )
    cluster.add_argument(
        "--worker-charge",
        choices=["input", "extend"],
        help="prompt tokens that D2LPM charges: all, or those to compute (input)",
    )
    cluster.add_argument(
        "--min-match",
        type=count,
        metavar="TOKENS",
        help="a shorter cached prefix does not count, for D2LPM (64)",
    )
    for flag, of in (
        ("round-trip", "the way there and back (0.0002)"),
        ("work", "for each answer (0.0001)"),
    ):
        cluster.add_argument(
            f"--central-{flag}", type=microseconds, metavar="SECONDS", help=f"of central-dlpm: {of}"
        )
    cluster.add_argument(
        "--fail", type=_change("--fail"), action="append", default=[], metavar="W@T",
        help="worker W is lost at T seconds; may be repeated",
    )  # fmt: skip
    cluster.add_argument(
        "--join", type=_change("--join"), action="append", default=[], metavar="W@T",
        help="worker W comes up at T seconds; may be repeated",
    )  # fmt: skip
    cluster.add_argument(
        "--event-delay", type=microseconds, default=0, metavar="SECONDS",
        help="after which the router hears of a cache's change (0)",
    )  # fmt: skip


def _add_engine(engine: Any) -> None:
    from fairlead.schedulers import MISFIT
    from fairlead.sim.config import ADMISSIONS, INBATCH, MISFITS
    from fairlead.sim.hosts import HOSTS

    engine.add_argument(
        "--host", choices=HOSTS, help="which engine is simulated (the admission's: ideal)"
    )
    engine.add_argument(
        "--admission",
        choices=ADMISSIONS,
        help="what must find room: prompt and max_tokens, the artifact's worst case, the prompt (the host's)",
    )
    engine.add_argument(
        "--inbatch", choices=INBATCH, help="a prompt is cached once admitted, or computed (share)"
    )
    engine.add_argument(
        "--misfit", choices=MISFITS,
        help=f"who does not fit ends the look, or is passed over (stop; skip for {_skippers(MISFIT)})",
    )  # fmt: skip
    engine.add_argument(
        "--max-misfits", type=count, metavar="N", help="passed over in a look (no limit)"
    )
    engine.add_argument(
        "--max-running", type=count, default=256, metavar="N", help="requests in a batch (256)"
    )
    engine.add_argument(
        "--batch-tokens", type=count, metavar="TOKENS",
        help="computed in a pass: vLLM's budget, SGLang's chunk (the GPU's)",
    )  # fmt: skip
    engine.add_argument(
        "--kv-tokens", type=count, metavar="M", help="memory (what the GPU has beside the model)"
    )
    engine.add_argument(
        "--step-time", default="a10g:llama-3.2-3b", metavar="MODEL",
        help="linear:BASE,PER_EXTEND,PER_RUNNING in seconds, or GPU:MODEL (a10g:llama-3.2-3b)",
    )  # fmt: skip
    engine.add_argument("--constants", metavar="YAML", help="more GPUs and models")
    engine.add_argument(
        "--jitter", type=float, default=0.0, metavar="SHARE", help="spread of each step's time (0)"
    )


def _add_scheduler(fairness: Any) -> None:
    from fairlead.schedulers import SCHEDULERS

    fairness.add_argument(
        "--scheduler", choices=SCHEDULERS, default="dlpm", help="whose turn it is (dlpm)"
    )
    fairness.add_argument(
        "--quantum", type=count, metavar="TOKENS", help="Q^u of dlpm and drr (4096)"
    )
    fairness.add_argument("--weights", metavar="a=2,b=1", help="shares of clients (1)")
    fairness.add_argument(
        "--charge", choices=["extend", "input"],
        help="prompt tokens charged: those to compute, or all (the scheduler's)",
    )  # fmt: skip
    fairness.add_argument(
        "--cost", metavar="COST", help="h(input, output): profiled, flops:MODEL, ... (linear:1,2)"
    )
    fairness.add_argument(
        "--max-overtake",
        type=whole,
        metavar="TOKENS",
        help="of DLPM: what may overtake a client's oldest (no limit)",
    )
    fairness.add_argument(
        "--fallback", type=whole, metavar="N", help="of LPM: by arrival above N waiting (none)"
    )
    fairness.add_argument(
        "--rpm-limit", type=count, metavar="N", help="of rpm: requests of a client in a window (30)"
    )
    fairness.add_argument("--rpm-window", type=microseconds, metavar="SECONDS", help="of rpm (60)")
    fairness.add_argument(
        "--rpm-mode",
        choices=["reject", "delay"],
        help="of rpm: what becomes of the others (reject)",
    )


def _skippers(misfit: dict[str, str]) -> str:
    return ", ".join(name for name, what in misfit.items() if what == "skip")


def run(options: argparse.Namespace) -> int:
    """Simulate, then print and write what was asked for."""
    from fairlead.cli import simulated
    from fairlead.cli.without_effect import require_effect
    from fairlead.core.costs import parse_cost
    from fairlead.sim.config import HOST_OF, SimConfig
    from fairlead.sim.constants import BUILT_IN, read_constants

    config = SimConfig(
        scheduler=options.scheduler,
        router=options.router,
        replicas=options.replicas,
        host=options.host or HOST_OF[options.admission],
        admission=options.admission,
        inbatch=options.inbatch,
        misfit=options.misfit,
        max_misfits=options.max_misfits,
        max_running=options.max_running,
        batch_tokens=options.batch_tokens,
        kv_tokens=options.kv_tokens,
        step_time=options.step_time,
        constants=read_constants(Path(options.constants)) if options.constants else BUILT_IN,
        jitter=options.jitter,
        quantum=options.quantum,
        charge=options.charge,
        cost=parse_cost(options.cost, where="--cost") if options.cost else None,
        max_overtake=options.max_overtake,
        fallback=options.fallback,
        weights=parse_weights(options.weights) if options.weights is not None else {},
        worker_quantum=options.worker_quantum,
        worker_charge=options.worker_charge,
        min_match=options.min_match,
        central_round_trip_us=options.central_round_trip,
        central_work_us=options.central_work,
        rpm_limit=options.rpm_limit,
        rpm_window_us=options.rpm_window,
        rpm_mode=options.rpm_mode,
        changes=tuple(options.fail + options.join),
        event_delay_us=options.event_delay,
        seed=options.seed,
        skips=not options.no_skip,
    )
    require_effect(config)
    return simulated.run(config, options.trace, events=options.events, summary=options.summary)


def _change(flag: str) -> Callable[[str], "Change"]:
    """A reader of W@T."""

    def read(text: str) -> "Change":
        from fairlead.sim.config import Change

        worker, at, time = text.partition("@")
        if not (at and worker.isascii() and worker.isdigit()):
            raise ConfigError(f"{flag}: expected W@T, a worker's number and seconds, got {text!r}")
        try:
            time_us = microseconds(time)
        except argparse.ArgumentTypeError as error:
            raise ConfigError(f"{flag} {text}: {error}") from None
        return Change(time_us=time_us, worker=int(worker), up=flag == "--join")

    return read


def parse_weights(text: str) -> dict[str, object]:
    """`a=2,b=1`. Raises ConfigError; what the numbers may be is checked where they are used."""
    weights: dict[str, object] = {}
    for part in text.split(","):
        client, equals, weight = part.rpartition("=")
        if not equals or not client:
            raise ConfigError(f"--weights: expected client=weight,..., got {part!r}")
        if client in weights:
            raise ConfigError(f"--weights: client {client!r} is there twice")
        weights[client] = weight
    return weights

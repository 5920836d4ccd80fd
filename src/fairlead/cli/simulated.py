"""Runs a simulation for a person: progress on the terminal, files, what there is when interrupted."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import signature
from typing import IO, Any

from fairlead.cli.outputs import require_apart, screen
from fairlead.cli.progress import progress
from fairlead.cli.summary_table import show
from fairlead.cli.without_effect import unknown_clients
from fairlead.core.events import Observer
from fairlead.core.service import Weights
from fairlead.errors import ConfigError
from fairlead.metrics.events_file import writing_events
from fairlead.metrics.gaps import Bound, View, dlpm_bound, no_bound, vtc_bound
from fairlead.metrics.summary import Summary
from fairlead.routers import LATE_ROUTERS
from fairlead.schedulers.dlpm import DLPM
from fairlead.sim.cluster import Cluster, capacity_of
from fairlead.sim.config import SimConfig
from fairlead.sim.garbage import no_collections
from fairlead.workloads.files import written
from fairlead.workloads.trace import read_trace

INTERRUPTED = 130


def run(config: SimConfig, trace: str, *, events: str | None, summary: str | None) -> int:
    """Exit status: 0 done, 130 interrupted; what there is then is written. Raises ConfigError."""
    require_apart([trace], {"--events": events, "--summary": summary})
    with _opened("--summary", summary) as file:
        report = _simulate(config, trace, events)
        if file is not None:
            file.write(json.dumps(report, indent=2).encode() + b"\n")
    show(report, screen(events, summary))
    if unknown := unknown_clients(config, report["clients"]):
        names = ", ".join(map(repr, unknown))
        print(f"fairlead: --weights: no request of {names} came", file=sys.stderr)
    return INTERRUPTED if report["interrupted"] else 0


def _simulate(config: SimConfig, trace: str, events: str | None) -> dict[str, Any]:
    """The summary; the events are written by the way."""
    weights = Weights(config.weights)
    one_queue = config.replicas if config.router in LATE_ROUTERS else 0
    counted = Summary(bound=bound_of(config), weight_of=weights.of, one_queue=one_queue)
    observers: list[Observer] = [counted]
    with ExitStack() as files:
        if events is not None:
            config = replace(config, skips=False)  # so that all lines are in order of time
            observers.append(files.enter_context(writing_events(events)))
        cluster = Cluster(
            config, read_trace(trace), observers, weights=weights, on_start=counted.start
        )
        with stopped_by_ctrl_c(cluster), progress(cluster), no_collections():
            cluster.run()
        _tell_left(cluster, counted)
    report = counted.as_dict(interrupted=cluster.kernel.stopped)
    if cluster.late:
        clients = report.pop("clients")
        report |= {"central": dict(cluster.late.central.overhead()), "clients": clients}
    return report


def bound_of(config: SimConfig) -> Bound:
    """What the theorems promise under these settings (docs/reference/invariants.md)."""
    # Whoever shares one queue shares all memories.
    capacity = capacity_of(config) * (config.workers if config.router in LATE_ROUTERS else 1)
    if config.host != "ideal":
        return no_bound("the bounds need reserve admission")
    if config.cost is not None:
        return no_bound("the bounds are for the linear cost")
    if not all(change.up for change in config.changes):
        # Its requests are computed again, and their next worker charges for that.
        return no_bound("the bounds need workers that stay")
    if config.scheduler == "dlpm":
        view: View = "client" if config.charge == "input" else "system"
        quantum = config.quantum or signature(DLPM).parameters["quantum"].default
        return dlpm_bound(quantum=quantum, capacity=capacity, view=view)
    if config.scheduler == "vtc":
        if config.skips_misfits:
            return no_bound("VTC's theorems need a look that stops at a misfit")
        view = "system" if config.charge == "extend" else "client"
        return vtc_bound(capacity=capacity, view=view)
    return no_bound(f"no theorem bounds the gaps of {config.scheduler}")


def _tell_left(cluster: Cluster, counted: Summary) -> None:
    """Who has come and not ended is counted, and named where the run was not cut short."""
    left = 0
    for row in cluster.intake.alive():
        counted.left(row.id, row.client, cluster.now_us)
        left += 1
    if left and not cluster.kernel.stopped:
        print(
            f"fairlead: warning: {left:,} requests are unfinished: they wait for a worker, or for "
            "a request that does, and none is up",
            file=sys.stderr,
        )


@contextmanager
def stopped_by_ctrl_c(cluster: Cluster) -> Iterator[None]:
    """The first Ctrl-C ends the run between two events; a second one ends the program."""

    def stop(*_: Any) -> None:
        cluster.kernel.stopped = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _opened(flag: str, path: str | None) -> Iterator[IO[bytes] | None]:
    """The file of a flag, if it is given; that it can be created is found out before the run."""
    if path is None:
        yield None
        return
    file = written(path)
    try:
        opened = file.__enter__()
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from None
    with ExitStack() as closing:
        closing.push(file)
        yield opened

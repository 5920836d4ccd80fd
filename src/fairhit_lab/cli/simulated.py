"""Run a simulation for the command line: progress, output files, partial results at Ctrl-C."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, Any

from fairhit.core.service import Weights
from fairhit.errors import ConfigError
from fairhit_lab.cli.outputs import require_apart, screen
from fairhit_lab.cli.progress import progress
from fairhit_lab.cli.summary_table import show
from fairhit_lab.cli.without_effect import unknown_clients
from fairhit_lab.events import Observer
from fairhit_lab.metrics.events_file import writing_events
from fairhit_lab.metrics.summary.report import json_of
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.runner.gc_control import no_collections
from fairhit_lab.sim.bounds import report_of, summary_of
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.traces.files import written
from fairhit_lab.traces.trace import read_trace

INTERRUPTED = 130


def run(config: SimConfig, trace: str, *, events: str | None, summary: str | None) -> int:
    """Simulate and write the outputs, also at Ctrl-C; exit status 0 or 130. Raises ConfigError."""
    require_apart([trace], {"--events": events, "--summary": summary})
    with _opened("--summary", summary) as file:
        report = _simulate(config, trace, events)
        if file is not None:
            for part in json_of(report):
                file.write(part.encode())
    show(report, screen(events, summary))
    if unknown := unknown_clients(config, report["clients"]):
        names = ", ".join(map(repr, unknown))
        print(f"fairhit: --weights: no request of {names} came", file=sys.stderr)
    return INTERRUPTED if report["interrupted"] else 0


def _simulate(config: SimConfig, trace: str, events: str | None) -> dict[str, Any]:
    """The summary of one run, whose events are written meanwhile."""
    weights = Weights(config.weights)
    counted = summary_of(config, weights)
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
        _report_unfinished(cluster, counted)
    return report_of(cluster, counted)


def _report_unfinished(cluster: Cluster, counted: Summary) -> None:
    """Count the requests that arrived and did not end; print their number unless the run was interrupted."""
    left = 0
    for row in cluster.intake.alive():
        counted.left(row.id, row.client, cluster.now_us)
        left += 1
    if left and not cluster.kernel.stopped:
        print(
            f"fairhit: warning: {left:,} requests are unfinished: they wait for a worker, or for "
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
    """Open the file of a flag before the run, if the flag is given. Raises ConfigError."""
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

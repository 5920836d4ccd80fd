"""Runs a simulation for a person: progress on the terminal, files, what there is when interrupted."""

from contextlib import ExitStack

from fairlead.core.events import Observer
from fairlead.metrics.events_file import writing_events
from fairlead.sim.cluster import Cluster
from fairlead.sim.config import SimConfig
from fairlead.workloads.trace import read_trace


def run(config: SimConfig, trace: str, *, events: str | None) -> int:
    """Exit status. Raises ConfigError."""
    with ExitStack() as files:
        observers: list[Observer] = []
        if events is not None:
            observers.append(files.enter_context(writing_events(events)))
        cluster = Cluster(config, read_trace(trace), observers)
        cluster.run()
    return 0

"""Progress of a simulation: a line at the bottom of the terminal, for runs over two seconds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
from rich.text import Text

from fairhit_lab.sim.cluster import Cluster

# Shorter runs end before a user could read the line.
SHOWN_AFTER_S = 2.0


class _SoFar(ProgressColumn):
    """Requests read and in flight, and the virtual time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def render(self, task: Task) -> Text:
        intake = self._cluster.intake
        virtual = timedelta(seconds=self._cluster.now_us // 10**6)
        rate = intake.rows_read / task.elapsed if task.elapsed else 0
        return Text(
            f"{intake.rows_read:,} requests, {rate:,.0f}/s, {len(intake):,} in flight, "
            f"{virtual} simulated",
            no_wrap=True,
        )


@contextmanager
def progress(cluster: Cluster) -> Iterator[None]:
    """Show progress on stderr, if that is a terminal, once the run has taken two seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    # The number of requests is not known: a trace is read as it is simulated.
    bar = Progress(
        SpinnerColumn(), _SoFar(cluster), TimeElapsedColumn(),
        console=console, transient=True, refresh_per_second=4,
    )  # fmt: skip
    bar.add_task("simulate", total=None)
    late = threading.Timer(SHOWN_AFTER_S, bar.start)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
        late.join()
        bar.stop()

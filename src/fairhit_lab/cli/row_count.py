"""Progress of reading or writing a trace: rows so far, for runs over two seconds."""

import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairhit_lab.traces.trace import TraceRow

SHOWN_AFTER_S = 2.0
EVERY = 512  # rows between readings of the clock


def counted(rows: Iterable[TraceRow], doing: str) -> Iterator[TraceRow]:
    """Yield the rows unchanged; show their count and rate on standard error if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from rows
        return
    columns = (
        TextColumn(doing),
        BarColumn(20),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, refresh_per_second=4)
    line = bar.add_task("", total=None)
    began_s = time.monotonic()
    try:
        for number, row in enumerate(rows, 1):
            yield row
            if number % EVERY == 0 and (passed_s := time.monotonic() - began_s) > SHOWN_AFTER_S:
                bar.start()
                bar.update(line, description=f"{number:,} rows, {number / passed_s:,.0f}/s")
    finally:
        bar.stop()

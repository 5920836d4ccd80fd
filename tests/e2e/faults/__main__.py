"""`python -m tests.e2e.faults [--minutes 20] [--write]`: the soak, and 100,000 clients who ask once.

Fails if a request is lost, or if the gateway's memory grows in the second half, or by too much for a client.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.record import write_rows
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fairhit.local import provenance
from tests.e2e.faults import strangers
from tests.e2e.faults.census import Census
from tests.e2e.faults.soak import CALLERS, ENGINES, FLAT_MB_PER_HOUR, Outcome, judgement, soak
from tests.e2e.gateway.process import running

EVERY_S = 10.0  # a misfortune
CLIENTS = 100_000


def shown_soak(folder: Path, minutes: float, seed: int, console: Console) -> Outcome:
    """With a bar that says how far it is, where there is a terminal."""
    columns = (
        TextColumn("soak"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[so_far]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("soak", total=minutes * 60, so_far="")

        def tell(seconds: float, census: Census) -> None:
            so_far = f"{census.offered:,} offered, {census.lost} lost"
            bar.update(task, completed=seconds, so_far=so_far)

        return asyncio.run(
            soak(folder, seconds=minutes * 60, every_s=EVERY_S, seed=seed, tell=tell)
        )


async def strangers_pass(folder: Path) -> float:
    with strangers.quick_engine() as url:
        async with running(folder, worker_urls=[url], **strangers.SETTINGS) as process:
            return await strangers.pass_by(process, CLIENTS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.faults", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="to benchmarks/results/soak.json")
    options = parser.parse_args()
    console, about = Console(), provenance.of_this_run()  # of the commit that it ran on
    with tempfile.TemporaryDirectory() as folder:
        left = asyncio.run(strangers_pass(Path(folder)))
        outcome = shown_soak(Path(folder), options.minutes, options.seed, console)
    row = {
        "minutes": options.minutes,
        **outcome.row(),
        "bytes per client who asks once": round(left),
    }
    table = Table("what", "number", title="soak")
    for what, number in row.items():
        table.add_row(what, str(number))
    console.print(table)
    complaints = judgement(outcome)
    if not outcome.is_flat:
        complaints.append(f"memory grew by more than {FLAT_MB_PER_HOUR} MB/hour")
    if left > strangers.CLIENT_BYTES:
        complaints.append(f"{left:.0f} bytes stay for each client who asked once")
    for complaint in complaints:
        console.print(f"soak: {complaint}", style="red", highlight=False)
    if options.write and not complaints:
        write_rows(
            "soak", [row],
            **about, seed=options.seed, callers=CALLERS, engines=ENGINES, clients=CLIENTS,
            rss_samples=outcome.rss[:: max(1, len(outcome.rss) // 60)],
        )  # fmt: skip
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

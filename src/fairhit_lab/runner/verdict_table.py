"""A study's verdicts on the terminal: claim, the paper's value, ours, and whether it holds."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairhit_lab.studies.shared.study import Holds, Study, Verdict

STYLES: dict[Holds, str] = {
    "holds": "green",
    "holds only if": "yellow",
    "does not hold": "red",
    "not comparable": "dim",
}
MAX_WIDTH = 100


def show_verdicts(name: str, study: Study, verdicts: Sequence[Verdict], console: Console) -> None:
    """At most 100 columns; the reason stands below its claim."""
    table = Table(title=Text(f"{name}: {study.title}"), title_justify="left", box=None, expand=True)
    table.add_column("claim", ratio=5)
    table.add_column("paper", ratio=2)
    table.add_column("ours", ratio=2)
    table.add_column("", ratio=2)
    for verdict in verdicts:
        claim = Text(verdict.claim)
        if verdict.why:
            claim.append(f"\n{verdict.why}", style="dim")
        holds = Text(verdict.holds, style=STYLES[verdict.holds])
        table.add_row(claim, Text(verdict.paper), Text(verdict.ours), holds)
    console.print(table, width=min(console.width, MAX_WIDTH))

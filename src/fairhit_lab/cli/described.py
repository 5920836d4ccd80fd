"""The description of a trace for a terminal: two tables and two histograms."""

from rich.markup import escape
from rich.table import Table

from fairhit_lab.cli.outputs import OutputConsole
from fairhit_lab.traces.describe import Description, Lengths, Part

MOST_CLIENTS = 20  # shown one by one; the rest is one line
BAR = 40


def show(name: str, found: Description) -> None:
    """Print the description."""
    console = OutputConsole(highlight=False)
    everything = found.all
    console.print(
        f"[bold]{escape(name)}[/bold]: {everything.requests:,} requests of {len(found.clients):,} clients "
        f"in {found.duration_s:,.1f} s, {found.rate(everything):,.3g}/s, arrival cv {found.gaps.cv:.2f}",
        soft_wrap=True,
    )
    console.print(
        f"{found.programs:,} programs, {found.dependent:,} requests wait for others, "
        f"{found.cancelled:,} are cancelled",
        soft_wrap=True,
    )
    if found.prefix_known:
        console.print(
            f"prefix share {everything.prefix_share:.3f}: input tokens that an unlimited cache would serve",
            soft_wrap=True,
        )
    for title, lengths in (
        ("input tokens", everything.input),
        ("output tokens", everything.output),
    ):
        console.print()
        _histogram(console, title, lengths)
    console.print()
    console.print(_clients(found))


def _histogram(console: OutputConsole, title: str, lengths: Lengths) -> None:
    console.print(
        f"{title}: mean {lengths.mean:,.0f}, p50 {lengths.quantile(0.5):,}, p99 {lengths.quantile(0.99):,}"
    )
    octaves = lengths.octaves()
    longest = max((count for _, _, count in octaves), default=1)
    for first, last, count in octaves:
        bar = "█" * round(BAR * count / longest) or ("▏" if count else "")
        console.print(
            f"{first:>11,} - {last:<11,} [cyan]{bar:<{BAR}}[/cyan] {count:,}", soft_wrap=True
        )


def _clients(found: Description) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("client", overflow="fold")
    for title in ("requests", "rate/s", "service", "input", "output", "prefix"):
        table.add_column(title, justify="right")
    ranked = found.by_service()
    for client, part in ranked[:MOST_CLIENTS]:
        table.add_row(escape(client), *_cells(found, part))
    if rest := ranked[MOST_CLIENTS:]:
        others = sum(part.requests for _, part in rest)
        share = sum(part.service for _, part in rest) / found.all.service
        table.add_row(f"{len(rest):,} more", f"{others:,}", "", f"{share:.1%}", "", "", "")
    return table


def _cells(found: Description, part: Part) -> list[str]:
    return [
        f"{part.requests:,}",
        f"{found.rate(part):.3g}",
        f"{part.service / max(1, found.all.service):.1%}",
        f"{part.input.mean:,.0f}",
        f"{part.output.mean:,.0f}",
        f"{part.prefix_share:.3f}" if found.prefix_known else "",
    ]

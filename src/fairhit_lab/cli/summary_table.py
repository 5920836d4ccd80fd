"""A summary as a person reads it: a few lines for the run, then what the busiest clients got, and how fast.

Numbers are never cut: in a narrow window names are folded first, then lines run past its edge.
"""

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

# More rows than this are read in the JSON file, not on a terminal.
SHOWN_CLIENTS = 20
GAP = 2  # blanks between columns
PERCENTILES = ("p50", "p95", "p99")

Report = dict[str, Any]


def show(report: Report, console: Console) -> None:
    """Print the summary's main numbers; all of them are in the JSON (docs/reference/summary.md)."""
    for line in _lines(report):
        console.print(line, highlight=False)
    clients = report["clients"]
    busiest = nlargest(
        SHOWN_CLIENTS, clients.items(), key=lambda item: item[1]["service"]["client"]
    )
    _print(_service(busiest), console)
    _print(_latencies(busiest), console)
    if report["programs"]["count"]:
        _print(_programs(report["programs"], clients), console)
    if len(clients) > SHOWN_CLIENTS:
        console.print(
            f"and {len(clients) - SHOWN_CLIENTS:,} more clients: see --summary", highlight=False
        )


def _lines(report: Report) -> Iterator[str]:
    requests, throughput, tokens = report["requests"], report["throughput"], report["tokens"]
    if report["interrupted"]:
        yield "[bold]interrupted[/bold]: what had happened until then"
    rejected = sum(requests["rejected"].values())
    yield (
        f"{requests['total']:,} requests: {requests['finished']:,} finished, {rejected:,} rejected, "
        f"{requests['cancelled']:,} cancelled, {requests['unfinished']:,} unfinished"
    )
    yield (
        f"{report['end_s']:,.1f} s, {_number(throughput['tokens_per_s'])} tokens/s, "
        f"{tokens['input']:,} tokens in ({_share(report['locality']['hit_rate'])} cached), "
        f"{tokens['output']:,} out"
    )
    locality = report["locality"]
    yield (
        f"{report['refills']['rounds']:,} refills, {locality['evicted_tokens']:,} tokens evicted, "
        f"{locality['recomputed_tokens']:,} recomputed, "
        f"idle with work {report['idle_with_work_s']['total']:,.1f} s"
    )
    entitlement = report["entitlement"]
    if entitlement["worst_share"] is not None:
        yield (
            f"least share of entitlement {_number(entitlement['worst_share'], 3)}, "
            f"Jain's index of the shares {_number(entitlement['jain'], 4)}"
        )
    jain = report["jain"]
    yield (
        f"Jain's index {_number(jain['system'], 4)} in extend + 2 output, "
        f"{_number(jain['client'], 4)} in input + 2 output, "
        f"over {_number(jain['all_active_s'])} s in which all were active"
    )
    yield "largest gap of two backlogged clients: " + _gap(report["gaps"])
    if central := report.get("central"):
        yield (
            f"asking one scheduler: {central['passes']:,} passes, "
            f"{central['delta_bytes']:,} bytes of deltas, "
            f"{central['answer_bytes']:,} of answers, workers blocked for {central['blocked_s']:,.1f} s"
        )


def _gap(gaps: Report) -> str:
    worst = gaps["worst"]
    if worst is None:
        return "none, as no two had something waiting in one queue at one time"
    pair = " and ".join(escape(client) for client in worst["clients"])
    bound = worst.get("bound")
    promised = f"at most {bound:,.0f}" if bound else f"no bound: {gaps['no_bound_because']}"
    return f"{worst['gap']:,.0f} tokens ({pair}; {promised})"


def _table(title: str, *headings: str) -> Table:
    """The first column is a name, the others are numbers."""
    table = Table(
        box=None, title=title, title_justify="left", pad_edge=False, padding=(0, GAP, 0, 0)
    )
    table.add_column("client", overflow="fold", min_width=10)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _print(table: Table, console: Console) -> None:
    """As wide as its numbers are, whatever the window is."""
    names, *numbers = table.columns
    cells = [[str(column.header), *map(str, column.cells)] for column in numbers]
    least = (names.min_width or 0) + sum(max(map(len, column)) for column in cells)
    least += GAP * len(table.columns)
    if least > console.width:
        table.width = least
    console.print()
    console.print(table, crop=False)


def _service(clients: list[tuple[str, Report]]) -> Table:
    table = _table("service", "requests", "finished", "extend + 2 out", "input + 2 out", "cached")
    for client, row in clients:
        table.add_row(
            escape(client),
            f"{row['requests']:,}",
            f"{row['finished']:,}",
            f"{row['service']['system']:,.0f}",
            f"{row['service']['client']:,.0f}",
            _share(row["hit_rate"]),
        )
    return table


def _latencies(clients: list[tuple[str, Report]]) -> Table:
    table = _table("seconds", *(f"first {at}" for at in PERCENTILES), *_done())
    for client, row in clients:
        table.add_row(escape(client), *_percentiles(row["ttft"]), *_percentiles(row["completion"]))
    return table


def _programs(programs: Report, clients: Mapping[str, Report]) -> Table:
    """The table of complete programs, by client in order of arrival."""
    title = f"programs, seconds: {programs['complete']:,} of {programs['count']:,} are complete"
    table = _table(title, "complete", *_done())
    for client in [client for client in clients if client in programs["clients"]][:SHOWN_CLIENTS]:
        row = programs["clients"][client]
        table.add_row(escape(client), f"{row['count']:,}", *_percentiles(row))
    whole = programs["completion"]
    table.add_row("[italic]all[/italic]", f"{whole['count']:,}", *_percentiles(whole))
    return table


def _done() -> Iterator[str]:
    return (f"done {at}" for at in PERCENTILES)


def _percentiles(row: Report) -> Iterator[str]:
    return (_number(row[f"{at}_s"], 3) for at in PERCENTILES)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"

"""A summary as a person reads it: a few lines for the run, a row for each of the busiest clients."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

# More rows than this are read in the JSON file, not on a terminal.
SHOWN_CLIENTS = 20

Report = dict[str, Any]


def show(report: Report, console: Console) -> None:
    """Print the summary's main numbers; all of them are in the JSON (docs/reference/summary.md)."""
    for line in _lines(report):
        console.print(line, highlight=False)
    console.print(_clients(report["clients"]))


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
    jain, gaps = report["jain"], report["gaps"]
    yield (
        f"Jain's index {_number(jain['system'], 4)} in extend + 2 output, "
        f"{_number(jain['client'], 4)} in input + 2 output, "
        f"over {_number(jain['all_active_s'])} s in which all were active"
    )
    if gaps["worst"]:
        yield "largest gap of two backlogged clients: " + _gap(gaps)
    if central := report.get("central"):
        yield (
            f"asking one scheduler: {central['looks']:,} looks, {central['delta_bytes']:,} bytes of deltas, "
            f"{central['answer_bytes']:,} of answers, workers blocked for {central['blocked_s']:,.1f} s"
        )


def _gap(gaps: Report) -> str:
    worst = gaps["worst"]
    pair = " and ".join(escape(client) for client in worst["clients"])
    bound = worst.get("bound")
    promised = f"at most {bound:,.0f}" if bound else f"no bound: {gaps['no_bound_because']}"
    return f"{worst['gap']:,.0f} tokens ({pair}; {promised})"


def _clients(clients: dict[str, Report]) -> Table:
    busiest = sorted(clients.items(), key=lambda item: -item[1]["service"]["client"])
    hidden = len(busiest) - SHOWN_CLIENTS
    table = Table(caption=f"and {hidden:,} more clients in the JSON" if hidden > 0 else None)
    table.add_column("client")
    for heading in (
        "requests", "finished", "extend + 2 output", "input + 2 output", "cached",
        "first token p50", "p99", "done p50", "p99",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for client, told in busiest[:SHOWN_CLIENTS]:
        table.add_row(
            escape(client),
            f"{told['requests']:,}",
            f"{told['finished']:,}",
            f"{told['service']['system']:,.0f}",
            f"{told['service']['client']:,.0f}",
            _share(told["hit_rate"]),
            *(_number(told["ttft"][at], 3) for at in ("p50_s", "p99_s")),
            *(_number(told["completion"][at], 3) for at in ("p50_s", "p99_s")),
        )
    return table


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"

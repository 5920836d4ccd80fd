"""`fairhit top`: the dashboard's numbers in a terminal, from the same JSON."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fairhit.errors import ConfigError, FairhitError

_TIMEOUT_S = 3.0
_AVERAGED_S = 60.0
_KEPT_S = 120.0
_MAX_ENGINES = 6
_BAR = 10
# Lines that are not rows of a table: two of text, two headings, two blank ones.
_OTHER_LINES = 6
SERVICE, EXTEND, CACHED, OUTPUT, WAITING, IN_FLIGHT = range(6)

Data = Mapping[str, Any]
Fetch = Callable[[int], Data]


class NoAnswer(FairhitError):
    """The gateway did not answer, or not with samples; the message has the reason."""


def fetcher(url: str, key: str | None) -> Fetch:
    """Function that fetches the samples after a number. It raises NoAnswer or ConfigError."""
    headers = {"authorization": f"Bearer {key}"} if key else {}

    def fetch(since: int) -> Data:
        request = urllib.request.Request(f"{url}/dashboard/data?since={since}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                data = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in {401, 403}:
                problem = "--key is not its admin key" if key else "needs --key, its admin key"
                raise ConfigError(f"--url {url}: {problem}") from None
            raise NoAnswer(f"{url} answers {error.code}") from None
        except HTTPException:
            raise NoAnswer(f"{url} does not speak HTTP") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(f"{url}: {reason}") from None
        if not isinstance(data, dict) or "samples" not in data:
            raise NoAnswer(f"{url} is not a fairhit gateway")
        return data

    return fetch


class TopScreen:
    """Samples of the last two minutes, rendered as lines that fit a terminal."""

    def __init__(self) -> None:
        self._samples: list[Data] = []
        self._about: Data = {}
        self.problem = ""  # why the last fetch failed

    @property
    def last(self) -> int:
        """Number of the newest sample."""
        return int(self._samples[-1]["n"]) if self._samples else 0

    def step(self, fetch: Fetch) -> None:
        """Fetch new samples. A gateway that does not answer, or was restarted, is no error."""
        try:
            data = fetch(self.last)
            if self._about and data["started_ms"] != self._about["started_ms"]:
                self._samples = []
                data = fetch(0)
        except NoAnswer as problem:
            self.problem = str(problem)
            return
        self.problem, self._about = "", data
        self._samples += data["samples"]
        if self._samples:
            oldest = self._samples[-1]["t"] - _KEPT_S
            self._samples = [sample for sample in self._samples if sample["t"] > oldest]

    def shown(self, *, height: int) -> Group:
        """Tables and headings in at most `height` lines of 80 columns."""
        if not self._samples:
            return Group(Text("fairhit", style="bold"), Text(self.problem or "no samples yet"))
        last = self._samples[-1]
        workers = list(last["workers"].items())
        rows = max(1, height - _OTHER_LINES - min(len(workers), _MAX_ENGINES))
        return Group(
            self._heading(last),
            self._now(last),
            Text(),
            self._clients(rows),
            Text(),
            _workers(workers),
        )

    def _heading(self, last: Data) -> Text:
        names = (self._about.get("scheduler"), self._about.get("policy"))
        text = Text("fairhit  ", style="bold", no_wrap=True, overflow="ellipsis")
        text.append(" + ".join(name for name in names if name), style="not bold")
        at = time.strftime("%H:%M:%S", time.localtime(last["t"]))
        if self.problem:
            text.append(f"  {self.problem}; as of {at}", style="not bold red")
        else:
            text.append(f"  {at}", style="not bold green")
        return text

    def _now(self, last: Data) -> Text:
        recent = list(self._recent())
        sums = _summed(row for sample in recent for row in _rows(sample).values())
        seconds = sum(sample["s"] for sample in recent)
        in_flight = sum(row[IN_FLIGHT] for row in _rows(last).values())
        words = [
            f"{short(sums[SERVICE] / seconds if seconds else 0)} tokens/s",
            f"{last['waiting']} waiting",
            f"{in_flight} in flight",
            f"{_share(sums[CACHED], sums[CACHED] + sums[EXTEND])} hits",
        ]
        gap = last["gap"]
        if gap and gap["bound"]:
            words.append(f"gap {short(gap['tokens'])} of {short(gap['bound'])}")
        elif gap:
            words.append(f"gap {short(gap['tokens'])}")
        return Text("   ".join(words), no_wrap=True, overflow="ellipsis")

    def _clients(self, most: int) -> Table:
        entitled = self._samples[-1].get("entitled", {})
        consumed = self._samples[-1].get("consumed", {})
        # Where engines report them, the shares of charge and of engine time take the place of the rates.
        headings = ("charge", "engine time") if consumed else ("tokens/s", "entitled")
        table = _table("client", "share of service", *headings, "waiting", "in flight", "cached")
        recent = list(self._recent())
        seconds = sum(sample["s"] for sample in recent) or 1.0
        names = dict.fromkeys(name for sample in recent for name in _rows(sample))
        none = [0] * 6
        sums = {name: _summed(_rows(sample).get(name, none) for sample in recent) for name in names}
        total = sum(row[SERVICE] for row in sums.values())
        order = sorted(sums, key=lambda name: (name is None, -sums[name][SERVICE], name or ""))
        hidden = order[most - 1 :] if len(order) > most else []
        for name in order[: len(order) - len(hidden)]:
            row, now = sums[name], _rows(self._samples[-1]).get(name, none)
            table.add_row(
                "all others" if name is None else escape(name),
                _bar(row[SERVICE] / total if total else 0),
                *(
                    _shares(consumed.get(name))
                    if consumed
                    else (
                        short(row[SERVICE] / seconds),
                        f"{entitled[name]:.0%}" if name in entitled else "-",
                    )
                ),
                str(now[WAITING]),
                str(now[IN_FLIGHT]),
                _share(row[CACHED], row[CACHED] + row[EXTEND]),
            )
        if hidden:
            table.add_row(f"[dim]and {len(hidden)} more[/dim]", "", "", "", "", "", "")
        return table

    def _recent(self) -> Iterator[Data]:
        newest = self._samples[-1]["t"]
        return (sample for sample in self._samples if sample["t"] > newest - _AVERAGED_S)


def run(url: str, key: str | None) -> int:
    """Show the gateway at `url` until Ctrl-C; without a terminal once, and raise NoAnswer if that fails.

    Raises ConfigError if access is denied.
    """
    fetch = fetcher(url.rstrip("/"), key)
    screen, console = TopScreen(), Console()
    if not console.is_terminal:
        screen.step(fetch)
        if screen.problem:
            raise NoAnswer(screen.problem)
        console.print(screen.shown(height=1000))
        return 0
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                screen.step(fetch)
                live.update(screen.shown(height=console.height), refresh=True)
                time.sleep(1)
    except KeyboardInterrupt:
        return 0


def short(value: float) -> str:
    """A number in five characters or fewer: 950, 1.2k, 35k, 2.1M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"


def _rows(sample: Data) -> dict[str | None, Sequence[int]]:
    """Rows by client; None is the sum of the clients not shown."""
    rows: dict[str | None, Sequence[int]] = dict(sample["clients"])
    if sample["other"] is not None:
        rows[None] = sample["other"]
    return rows


def _summed(rows: Iterator[Sequence[int]]) -> list[int]:
    sums = [0] * 6
    for row in rows:
        sums = [one + other for one, other in zip(sums, row, strict=True)]
    return sums


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _shares(consumed: Sequence[float] | None) -> tuple[str, str]:
    if consumed is None:
        return "-", "-"
    charge, seconds = consumed
    return f"{charge:.0%}", f"{seconds:.0%}"


def _bar(share: float) -> str:
    full = round(_BAR * min(1.0, share))
    return f"[blue]{'█' * full}[/blue][dim]{'░' * (_BAR - full)}[/dim] {share:4.0%}"


def _workers(workers: Sequence[tuple[str, Data]]) -> Table:
    table = _table("engine", "state", "in flight", "tokens in flight")
    shown = workers if len(workers) <= _MAX_ENGINES else workers[: _MAX_ENGINES - 1]
    for url, each in shown:
        state, closed = each["state"], each["circuit"] == "closed"
        label = state if closed else f"{state}, breaker {each['circuit']}"
        colour = "green" if state == "up" and closed else "red" if state == "down" else "yellow"
        limit = f" / {each['limit']}" if each["limit"] is not None else ""
        table.add_row(
            escape(url.partition("//")[2]),
            f"[{colour}]{label}[/{colour}]",
            f"{each['in_flight']}{limit}",
            "-" if each["in_flight_tokens"] is None else short(each["in_flight_tokens"]),
        )
    if len(shown) < len(workers):
        table.add_row(f"[dim]and {len(workers) - len(shown)} more[/dim]", "", "", "")
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(headings[0], no_wrap=True, max_width=22, overflow="ellipsis")
    for heading in headings[1:]:
        left = heading in {"share of service", "state"}
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    return table

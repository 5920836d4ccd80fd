"""Terminal output of `serve` and `demo`: progress, addresses, tables."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Coroutine
from pathlib import Path

from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairhit import built
from fairhit.errors import ConfigError
from fairhit.local import provenance
from fairhit.local import serve as service
from fairhit.local.demo import two_tenants as flood

TERMINAL = Console(highlight=False)


class StartupNews:
    """Progress of each process of the service: live lines during the start, plain lines later."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[str, TaskID] = {}
        self._began_s = time.monotonic()
        self._display = Progress(
            SpinnerColumn(finished_text="[green]●[/green]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
        )
        self._live = False
        self._bar: TaskID | None = None

    def __enter__(self) -> "StartupNews":
        # Where there is no terminal, each change is a line of its own.
        self._live = self._console.is_terminal
        if self._live:
            self._display.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._display.stop()
        self._live = False

    def advance(self, share: float) -> None:
        """Show the share of the measurement that is over, from 0 to 1."""
        if not self._live:
            return
        if self._bar is None:
            self._bar = self._display.add_task("measuring", total=1)
        self._display.update(self._bar, completed=share, description=f"measuring {share:4.0%}")

    def tell(self, name: str, news: str) -> None:
        """Print an event of one process."""
        if not self._live:
            passed_s = time.monotonic() - self._began_s
            self._console.print(f"{passed_s:6.1f} s  {name}: {news}", markup=False)
            return
        if name not in self._lines:
            self._lines[name] = self._display.add_task(name, total=1)
        self._display.update(
            self._lines[name], description=f"{name}: {news}", completed=1 if news == "ready" else 0
        )


# Printed at the first signal, at the second, and at all others.
STOPPING = (
    "stopping: requests in flight may finish",
    "stopping; once more ends everything at once",
    "stopping at once",
)


def until_done(work: Coroutine[None, None, None]) -> bool:
    """Run `work` to its end, or until Ctrl-C or SIGTERM; True if the end was reached.

    The first signal cancels it. The second changes nothing, for people press twice without meaning
    it; from the third on it is cancelled again, which makes `fairhit.local.serve` stop at once.
    """

    async def stoppable() -> bool:
        task = asyncio.ensure_future(work)
        asked = 0

        def stop() -> None:
            nonlocal asked
            asked += 1
            if asked != 2:
                task.cancel()
            TERMINAL.print(STOPPING[min(asked, len(STOPPING)) - 1])

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            await task
        except asyncio.CancelledError:
            TERMINAL.print("stopped")
            return False
        return True

    return asyncio.run(stoppable())


def serve(options: service.ServeOptions) -> int:
    """Run `fairhit serve` until a signal."""

    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            with StartupNews(TERMINAL) as news:
                running = await stack.enter_async_context(service.running(options, news.tell))
            introduce(running, options)
            await asyncio.Event().wait()

    until_done(work())
    return 0  # a signal is the usual end


def introduce(running: service.RunningService, options: service.ServeOptions) -> None:
    """Print the address, and example requests."""
    keys = options.gateway.keys()
    url = escape(running.url)  # brackets are rich's markup, and part of an IPv6 address
    TERMINAL.rule(
        f"fairhit: {len(running.engines)} engines, {options.scheduler} + {options.gateway.router()}"
    )
    TERMINAL.print(
        f"[bold]{url}[/bold]   live page {url}/dashboard   metrics {url}/metrics\n"
        f"logs {escape(str(running.folder))}\n",
        soft_wrap=True,
    )
    shown = "YOUR_KEY" if keys else None  # the keys themselves are known to their tenants alone
    TERMINAL.print(service.examples(running, shown), markup=False, soft_wrap=True)
    if not keys and not options.gateway.identify_by_user:
        TERMINAL.print(
            "Without keys every caller is the same client; give each tenant one: "
            "--tenant-api-key NAME:KEY, or --keys-file FILE."
        )
    if running.model == "demo":
        TERMINAL.print("The demo model has random weights: its answers are gibberish.")
    TERMINAL.print(f"The gateway is {built.description()}.", markup=False, soft_wrap=True)
    TERMINAL.print("Ctrl-C stops everything.")


def demo(*, seconds: int, seed: int, out: str | None) -> int:
    """Run `fairhit demo`: measure each policy, then print the table, also of an interrupted run."""
    if out is not None:
        require_writable(Path(out))
    results: list[flood.PolicyResult] = []

    async def work() -> None:
        for scheduler, router in flood.POLICIES:
            TERMINAL.rule(f"{scheduler} in the engines, {router} in the gateway")
            with StartupNews(TERMINAL) as news:
                result = await flood.run_policy(
                    scheduler,
                    router,
                    seconds=seconds,
                    seed=seed,
                    notify=news.tell,
                    advance=news.advance,
                )
            results.append(result)

    try:
        whole = until_done(work())
    finally:
        if results:
            report(results, flood.conditions(seconds=seconds, seed=seed), out)
    return 0 if whole else 130


def require_writable(path: Path) -> None:
    """Check before the measurement that `--out` can be written. Leaves no file. Raises ConfigError."""
    existed = path.exists() or path.is_symlink()
    try:
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}") from None


def report(
    results: list[flood.PolicyResult], conditions: dict[str, object], out: str | None
) -> None:
    """Print the tables with notes; write the same to `out`. Raises ConfigError."""
    TERMINAL.print(tables(results))
    TERMINAL.print(NOTES.format(kv=flood.KV_TOKENS, quantum=flood.QUANTUM))
    for setting in flood.SETTINGS:
        value, default = (
            f"{each:,}" if isinstance(each, int) else each
            for each in (setting.value, setting.default)
        )
        TERMINAL.print(f"  {setting.flag} {value} ({default})", markup=False)
        TERMINAL.print(f"    {setting.why}", markup=False)
    if out is None:
        return
    complete = len(results) == len(flood.POLICIES)
    rows = flood.as_rows(results)
    content = {**provenance.of_this_run(), **conditions, "complete": complete, "rows": rows}
    try:
        Path(out).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None
    TERMINAL.print(f"written: {out}", markup=False, soft_wrap=True)


NOTES = """\
Two real vLLM engines on this machine's CPU, random weights: compare rows, not
numbers. Latency is of the requests under way in the measured time; service is
extend + 2 x output tokens; hit rate: prompt tokens served from the cache.
The gap of the tenants' service is the largest over any part of the measured
time, at the worse engine. The bound is DLPM's alone: 2(U + Q), with U = longest
prompt + 2 x {kv:,} tokens of KV and Q = {quantum}, however long both wait. The gap of
the others grows all the time, but in a short run every row may lie below it.
Not as `fairhit serve` has it (its default), and why:"""


def tables(results: list[flood.PolicyResult]) -> Group:
    """Requests and latency of each tenant; then the service of both while both had requests waiting."""
    return Group(tenants_table(results), sharing_table(results))


def tenants_table(results: list[flood.PolicyResult]) -> Table:
    """The table with a row for each policy and tenant."""
    shown = Table(title="A tenant with 60 callers beside one with 16", title_style="bold")
    shown.add_column("policy")
    shown.add_column("tenant")
    for heading in ("req/s", "p50 s", "p95 s", "service/s", "hit rate"):
        shown.add_column(heading, justify="right")
    for result in results:
        names = (result.scheduler, f"+ {result.router}")
        for policy, (name, tenant) in zip(names, result.tenants.items(), strict=True):
            shown.add_row(
                policy,
                name,
                f"{tenant.requests_per_s:.1f}",
                f"{tenant.latency_ms_p50 / 1000:.2f}",
                f"{tenant.latency_ms_p95 / 1000:.2f}",
                f"{tenant.service / result.seconds:,.0f}",
                f"{tenant.hit_rate:.0%}",
            )
        shown.add_section()
    return shown


def sharing_table(results: list[flood.PolicyResult]) -> Table:
    """The table with a row for each policy."""
    shown = Table(title="While both had requests waiting at the same engine", title_style="bold")
    shown.add_column("policy")
    for heading in ("for s", "service ratio", "largest gap", "bound", "hit rate"):
        shown.add_column(heading, justify="right")
    for result in results:
        shown.add_row(
            f"{result.scheduler} + {result.router}",
            f"{result.backlogged_s:.1f}",
            "∞" if result.service_ratio is None else f"{result.service_ratio:.2f}",
            f"{max(result.gap_per_engine.values()):,}",
            f"{result.bound_per_engine:,}",
            f"{result.hit_rate:.0%}",
        )
    return shown

"""Supervision of one process: started, probed until it answers, restarted when it dies, stopped."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fairhit.errors import EngineFailed, in_words
from fairhit.local.guard import GRACE_DEFAULT_S, GRACE_VARIABLE

# The longest pause before a restart; pauses are 1, 2, 4... seconds, to spare a machine in trouble.
BACKOFF_MAX_S = 30.0
# Deaths in a row, without an answer in between, after which a process is given up.
MAX_DEATHS = 5
PROBE_INTERVAL_S = 0.3
START_TIMEOUT_S = 900.0
# The guard kills a process that does not stop in time; this timeout is longer by so much.
STOP_MARGIN_S = 7.0

# Levels of log lines that are not errors.
LEVELS = re.compile(r"\b(?:DEBUG|INFO|WARNING)\b")

Probe = Callable[[], Awaitable[bool]]
Notify = Callable[[str, str], None]


class Child:
    """A supervised process. Cancelling `supervise` stops the process.

    `probe` returns whether the process answers; `notify(name, event)` receives events for the operator.
    `grace_s` is the time to stop after SIGTERM, None for the guard's own 8 s.
    """

    def __init__(
        self,
        *,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        probe: Probe,
        notify: Notify,
        before_start: Callable[[], None] = lambda: None,
        grace_s: float | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.ready = asyncio.Event()
        self._command = list(command)
        self._environment = dict(environment)
        if grace_s is not None:
            self._environment[GRACE_VARIABLE] = str(grace_s)
        grace_s = float(self._environment.get(GRACE_VARIABLE, GRACE_DEFAULT_S))
        self._stop_timeout_s = grace_s + STOP_MARGIN_S
        self._probe = probe
        self._notify = notify
        self._before_start = before_start
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = self._skips_grace = False

    @property
    def pid(self) -> int | None:
        """The guard's process id, which is also the session's; None while no process runs."""
        return self._process.pid if self._process else None

    async def supervise(self) -> None:
        """Start, watch and restart the process until cancelled. Raises EngineFailed if it keeps dying."""
        deaths = 0
        served = False
        try:
            while True:
                await self._start()
                if await self._until_ready():
                    served, deaths = True, 0
                    self.ready.set()
                    self._notify(self.name, "ready")
                status = await self._until_exit()
                self.ready.clear()
                deaths += 1
                if not served or deaths > MAX_DEATHS:
                    raise EngineFailed(f"{self.name} cannot run: {self.last_error()} ({self.log})")
                delay_s = min(2.0 ** (deaths - 1), BACKOFF_MAX_S)
                self._notify(
                    self.name, f"ended (status {status}); starting again in {delay_s:.0f} s"
                )
                await asyncio.sleep(delay_s)
        finally:
            self.ready.clear()
            await self._stop()

    def stop_at_once(self) -> None:
        """Make the stop immediate, one that is under way included."""
        self._skips_grace = True
        if self._stopping:
            self._signal_stop()

    async def _start(self) -> None:
        self._notify(self.name, "starting")
        try:
            await self._spawn()
        except OSError as error:  # a full disk, no more processes
            raise EngineFailed(f"{self.name} cannot be started: {in_words(error)}") from None

    async def _spawn(self) -> None:
        self._before_start()
        command = [sys.executable, "-m", "fairhit.local.guard", str(os.getpid()), *self._command]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal reaches the supervisor alone, which stops the others in order.
                start_new_session=True,
            )

    async def _until_ready(self) -> bool:
        """Return whether the process answered a probe before it died."""
        assert self._process is not None
        process = self._process
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while process.returncode is None:
                    if await self._probe():
                        return True
                    await asyncio.sleep(PROBE_INTERVAL_S)
        except TimeoutError:
            self._notify(self.name, f"did not answer for {START_TIMEOUT_S:.0f} s")
            await self._stop()
        return False

    async def _until_exit(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def _stop(self) -> None:
        """Stop the process and every process it started. Safe to call twice."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._stopping = True
        self._signal_stop()
        try:
            async with asyncio.timeout(self._stop_timeout_s):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        finally:
            self._stopping = False

    def _signal_stop(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGQUIT if self._skips_grace else signal.SIGTERM)

    def last_error(self) -> str:
        """Return the log line that most likely names the cause of death."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"its log cannot be read: {in_words(error)}"
        lines = text.splitlines()[-400:]
        candidates = [line for line in lines if not LEVELS.search(line)]
        # A line of our own plug-in first; of an engine's exceptions the last that is not a repetition.
        for pattern in (r"^fairhit: .+", r"(?:\b\w*(?:Error|Exception)|\berror): .+", r".+"):
            found = [match[0] for line in candidates if (match := re.search(pattern, line))]
            causes = [line for line in found if "See root cause above" not in line]
            if causes:
                return causes[-1].strip()[:300]
        return "its log is empty"

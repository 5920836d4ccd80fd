"""Processes that were started with a group of their own, which servers fill with children."""

import contextlib
import os
import signal
import subprocess


def end(process: subprocess.Popen[bytes], *, within_s: float) -> None:
    """Terminate the process group, then kill it; its leader has ended when this returns."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(within_s)

"""Runs one command and sees to it that nothing of it outlives us: arguments PARENT COMMAND...

An engine is several processes, and who is killed with -9 cannot clean up. So between the supervisor
and each of its processes stands this small one, leader of a session of its own. When the supervisor
dies, however it dies, or asks by SIGTERM, or the command ends, the guard ends the whole session.
SIGQUIT asks the same without any patience. Standard library only: it starts at once.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# How long the command may take to end by itself after SIGTERM, in seconds.
GRACE_VARIABLE = "FAIRHIT_GUARD_GRACE_S"
GRACE_DEFAULT_S = 8.0
GRACE_S = float(os.environ.get(GRACE_VARIABLE, GRACE_DEFAULT_S))
# The usual meaning of "ended by a signal" as an exit status.
SIGNAL_STATUS = 128
# The cores the command may use, as numbers; all if there are none.
CORES_VARIABLE = "FAIRHIT_GUARD_CORES"
CORES = [int(core) for core in os.environ.get(CORES_VARIABLE, "").split()]
# From the supervisor, or from the kernel because the supervisor is gone; at once; the command ended.
HEARD = {signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD}


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status, or 143 when we were told to stop it."""
    parent, command = int(arguments[0]), list(arguments[1:])
    assert os.getpid() == os.getsid(0), "the guard leads its own session"
    # Blocked, then waited for: no signal can come at a wrong moment.
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Orphans inside the session become our children, so that none is left as a zombie.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # it died before the kernel knew that we care
        return SIGNAL_STATUS + signal.SIGTERM
    try:
        # This process has one thread, so code between fork and exec is safe.
        child = subprocess.Popen(command, preexec_fn=_before_command)  # noqa: PLW1509
    except OSError as error:
        sys.stderr.write(f"guard: error: {command[0]}: {error.strerror}\n")
        return 127
    heard: int = signal.SIGCHLD
    while child.poll() is None and heard == signal.SIGCHLD:
        heard = signal.sigwait(HEARD)
    asked = child.poll() is None
    _end_session(child, grace_s=GRACE_S if heard == signal.SIGTERM else 0)
    if asked:
        return SIGNAL_STATUS + signal.SIGTERM
    return child.returncode if child.returncode >= 0 else SIGNAL_STATUS - child.returncode


def _before_command() -> None:
    """In the child, before it becomes the command."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    if CORES:
        os.sched_setaffinity(0, CORES)
    # Should somebody kill the guard itself, the command must not live on.
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def _end_session(child: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """First the command may end in good order; then everything left is killed."""
    if child.poll() is None:
        child.terminate()
        _wait(child, grace_s)
        child.kill()  # nothing, if it has ended
    # A process may fork while we look, so look until there is none.
    while others := _others():
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    _reap()  # where process 1 reaps nothing, they would stay as zombies


def _wait(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Until it ended, the time is over, or nobody wants to wait any more."""
    until = time.monotonic() + grace_s
    while child.poll() is None and (left_s := until - time.monotonic()) > 0:
        # An hour at a time: the operator's patience may be infinite, the system call's is not.
        heard = signal.sigtimedwait(HEARD, min(left_s, 3600))
        if heard is not None and heard.si_signo == signal.SIGQUIT:
            return


def _others() -> list[int]:
    """Every other living process of our session."""
    own, session = os.getpid(), os.getsid(0)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            # `pid (name) state ppid pgrp session ...`; the name may contain anything.
            state, _, _, its = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it ended while we looked
        if int(its) == session and state not in "ZX":
            found.append(int(entry.name))
    return found


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

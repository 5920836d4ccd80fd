"""Runs one command and ends every process of it when the supervisor ends: arguments PARENT COMMAND...

An engine is several processes, and a supervisor killed with SIGKILL cannot clean up. So each of its
processes is started by a guard, which leads a session of its own. When the supervisor dies, for any reason,
or sends SIGTERM, or the command ends, the guard ends the whole session. SIGQUIT does so at once, without the
grace period. Standard library only, so that the guard starts fast.
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
# Grace period of the command between SIGTERM and SIGKILL, in seconds.
GRACE_VARIABLE = "FAIRHIT_GUARD_GRACE_S"
GRACE_DEFAULT_S = 8.0
GRACE_S = float(os.environ.get(GRACE_VARIABLE, GRACE_DEFAULT_S))
# The usual meaning of "ended by a signal" as an exit status.
SIGNAL_STATUS = 128
# Numbers of the cores that the command may use; empty: all.
CORES_VARIABLE = "FAIRHIT_GUARD_CORES"
CORES = [int(core) for core in os.environ.get(CORES_VARIABLE, "").split()]
# From the supervisor, or from the kernel when the supervisor has died; at once; the command ended.
SIGNALS = {signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status, or 143 if the guard was asked to stop it."""
    parent, command = int(arguments[0]), list(arguments[1:])
    assert os.getpid() == os.getsid(0), "the guard leads its own session"
    # Signals are blocked and waited for, so that none interrupts at a wrong moment.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Orphans inside the session become children of the guard, so that none is left as a zombie.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # the supervisor died before PDEATHSIG was set
        return SIGNAL_STATUS + signal.SIGTERM
    try:
        # The guard has one thread, so code between fork and exec is safe.
        child = subprocess.Popen(command, preexec_fn=_before_command)  # noqa: PLW1509
    except OSError as error:
        sys.stderr.write(f"guard: error: {command[0]}: {error.strerror}\n")
        return 127
    received: int = signal.SIGCHLD
    while child.poll() is None and received == signal.SIGCHLD:
        received = signal.sigwait(SIGNALS)
    was_stopped = child.poll() is None
    _end_session(child, grace_s=GRACE_S if received == signal.SIGTERM else 0)
    if was_stopped:
        return SIGNAL_STATUS + signal.SIGTERM
    return child.returncode if child.returncode >= 0 else SIGNAL_STATUS - child.returncode


def _before_command() -> None:
    """Prepare the child process, before it becomes the command."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if CORES:
        os.sched_setaffinity(0, CORES)
    # If the guard itself is killed, the command must die, too.
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def _end_session(child: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Terminate the command, wait for the grace period, then kill every process left in the session."""
    if child.poll() is None:
        child.terminate()
        _wait(child, grace_s)
        child.kill()  # no effect if it has ended
    # A process may fork during the search, so search until there is none.
    while others := _others():
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    _reap()  # process 1 may not reap zombies


def _wait(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Wait until the command has ended, the grace period is over, or SIGQUIT arrives."""
    until = time.monotonic() + grace_s
    while child.poll() is None and (left_s := until - time.monotonic()) > 0:
        # An hour at a time: the grace period may be infinite, the timeout of the system call may not.
        received = signal.sigtimedwait(SIGNALS, min(left_s, 3600))
        if received is not None and received.si_signo == signal.SIGQUIT:
            return


def _others() -> list[int]:
    """Return the ids of all other living processes of the session."""
    own, session = os.getpid(), os.getsid(0)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            # `pid (name) state ppid pgrp session ...`; the name may contain anything.
            state, _, _, its = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if int(its) == session and state not in "ZX":
            found.append(int(entry.name))
    return found


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Makes sure of a Chromium and its driver for the test of the report page: Debian's packages, by apt-get.

Where that cannot be done it says so and succeeds: the test is then skipped with a reason, which CI
does not accept. Standard library only.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

PACKAGES = ("chromium", "chromium-driver")
COMMANDS = ("chromium", "chromedriver")
TRIES = 3  # mirrors have bad moments

Run = Callable[[list[str]], "subprocess.CompletedProcess[str]"]


def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """With its output kept, and asking nothing."""
    environment: Mapping[str, str] = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def missing(found: Callable[[str], str | None] = shutil.which) -> list[str]:
    """The commands that are not there."""
    return [name for name in COMMANDS if found(name) is None]


def obstacle(found: Callable[[str], str | None] = shutil.which) -> str | None:
    """Why nothing can be installed here, if so."""
    if found("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return f"run as root: apt-get install {' '.join(PACKAGES)}"
    return None


def install(run: Run = run, wait_s: float = 5.0) -> str | None:
    """Update, then install; several tries. None, or what apt-get complained of last."""
    complaint = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(wait_s)
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            done = run(["apt-get", "-q", *command])
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
                complaint = f"apt-get {command[0]}: {lines[-1]}"
                break
        else:
            return None
    return complaint


def main() -> int:
    """0 always: without a browser everything but one test works."""
    absent = missing()
    if not absent:
        return 0
    reason = obstacle()
    if reason is None:
        print(f"install: {' and '.join(PACKAGES)}, for the test of the report page", flush=True)
        reason = install()
        if reason is None and (absent := missing()):
            reason = f"still no {' and no '.join(absent)} on the PATH"
    if reason:
        print(f"install: no browser ({', '.join(absent)}), its test will be skipped: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

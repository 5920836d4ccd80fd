"""The committed runs, as pages read them."""

import json
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def load(name: str) -> dict[str, Any]:
    """A committed run."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def load_builds(name: str) -> list[dict[str, Any] | None]:
    """Load a committed run on the compiled build and one in pure Python; None for a run that is missing."""
    names = (f"{name}_compiled", name)
    return [load(each) if (RESULTS / f"{each}.json").exists() else None for each in names]


def spread(values: list[float], form: str) -> str:
    """Median, and the least and greatest in brackets."""
    shown = [format(value, form) for value in (median(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def provenance(run: dict[str, Any]) -> str:
    """Machine and commit of a run."""
    machine = run["machine"]
    return f"{machine['processor']}, {machine['cores']} cores, commit `{run['commit']}`"

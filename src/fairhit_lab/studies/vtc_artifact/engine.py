"""The VTC artifact's engine and the GPU of its runs, as settings of the simulator."""

from collections.abc import Mapping
from typing import Any

from fairhit_lab.sim.engines.vtc_artifact import MAX_RUNNING

ENGINE: Mapping[str, Any] = {
    "host": "artifact",
    "router": "round-robin",
    "max_running": MAX_RUNNING,
}
ON_A10G: Mapping[str, Any] = {"step_time": "a10g-2024:llama-2-7b", "kv_tokens": 10_000}
# Of each pass's time, where a seed is to tell something: the engine has no randomness, and the real
# trace has none. The first seed goes without.
JITTER = 0.05

"""The systems that the DLPM paper compares (section 5), as settings of the simulator."""

from collections.abc import Mapping
from typing import Any

# In the figures' order. VTC and LPM are one engine's schedulers; in front of several, clients are
# spread one by one (VTC) or requests are (LPM, SGLang's default then).
DLPM_SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "d2lpm": {"scheduler": "dlpm", "router": "d2lpm"},
    "rr+lpm": {"scheduler": "lpm", "router": "round-robin"},
    "preble": {"scheduler": "preble-groups", "router": "preble"},
    "vtc": {"scheduler": "vtc", "router": "client-round-robin"},
}

NAMES = {"d2lpm": "D2LPM", "rr+lpm": "RR+LPM", "preble": "Preble", "vtc": "VTC"}

# Preble as the DLPM paper tells it (section 7.1): to the longest match above a threshold, whatever waits
# there, else to who has least; no weighing of loads, no moving of prefixes.
PREBLE_BY_THRESHOLD: Mapping[str, Any] = {
    "scheduler": "preble-groups",
    "router": "d2lpm",
    "worker_quantum": 10**9,
}

# GPUs and models of the paper's figures. An A10G has 129,000 tokens of KV beside the smaller model and
# 39,000 beside the larger one, where prefixes push each other out.
ON_A10G = {"step_time": "a10g:llama-3.2-3b"}
ON_A10G_8B = {"step_time": "a10g:llama-3.1-8b"}
ON_A100 = {"step_time": "a100:llama-3.1-8b"}

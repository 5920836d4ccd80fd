"""Settings of the choice: which engine a request goes to, and what is known of the engines' caches."""

from pathlib import Path

from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import Policy, Shares
from fairlead.routers.d2lpm import WorkerCharge


class Routing(Group):
    """Fairness and locality."""

    policy: Policy = setting(
        "d2lpm", "how a worker is chosen: d2lpm, round-robin, least-loaded", "NAME",
        also=("routing_logic",),
    )  # fmt: skip
    worker_quantum: int = setting(16384, "Q^w of D2LPM", "TOKENS", ge=1)
    min_match: int = setting(64, "a shorter cached prefix does not count", "TOKENS", ge=1)
    worker_charge: WorkerCharge = setting(
        "extend", "prompt tokens charged: those to compute, or all"
    )
    weights: Shares = setting({}, "shares; 1 for who is not named", "CLIENT=WEIGHT,...", live=True)
    max_tree_size: int = setting(32768, "prefix index per worker", "CHUNKS", ge=1)
    tokenizer: Path | None = setting(
        None, "index tokens, by DIR/tokenizer.json, instead of bytes", "DIR"
    )

"""Settings of the choice: which engine a request goes to, and what is known of the engines' caches."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from fairlead.gateway.header_rules import HEADERS, TENANT
from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.policies import POLICIES, Policy, PolicyName, router_of
from fairlead.gateway.settings.values import HeaderName, Shares
from fairlead.routers.d2lpm import WorkerCharge


def readable(name: str) -> str:
    """The name of a header that is still there when a request is routed. Raises ValueError."""
    if HEADERS.get(name.encode(), TENANT) != TENANT:
        raise ValueError(f"expected a header that says nothing else, got {name!r}")
    return name


KeyHeader = Annotated[HeaderName, AfterValidator(readable)]


class Routing(Group):
    """Fairness and locality."""

    policy: Policy = setting(
        "d2lpm", f"how a worker is chosen: {', '.join(POLICIES)}", "NAME", also=("routing_logic",)
    )
    routing_key_header: KeyHeader = setting(
        "x-smg-routing-key", "requests with one value of it go to one engine, for --policy sticky", "NAME",
        also=("session_key",),
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

    def router(self) -> PolicyName:
        """Our router for `policy`, which may be another gateway's name for one like it."""
        return router_of(self.policy)

    def renamed(self) -> str | None:
        """One line that says what another gateway's name for a policy became; None: the name is ours."""
        if self.policy == self.router():
            return None
        return f"--policy {self.policy}: another gateway's name; the router is {self.router()}"

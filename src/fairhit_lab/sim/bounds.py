"""What counts a simulation and holds it against the theorems that apply to its settings."""

from inspect import signature
from typing import Any

from fairhit.core.service import Weights
from fairhit.policies.dlpm import DLPM
from fairhit_lab.baselines import CENTRAL_ROUTERS
from fairhit_lab.metrics.gaps import Bound, View, dlpm_bound, no_bound, vtc_bound
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster, capacity_of
from fairhit_lab.sim.config import SimConfig


def summary_of(config: SimConfig, weights: Weights) -> Summary:
    """An empty one, to be given the events; it knows the bound, the weights and who shares a queue."""
    one_queue = config.replicas if config.router in CENTRAL_ROUTERS else 0
    return Summary(bound=bound_of(config), weight_of=weights.of, one_queue=one_queue)


def report_of(cluster: Cluster, counted: Summary) -> dict[str, Any]:
    """The summary when the run is over (docs/reference/summary.md); its clients are ClientRows."""
    report = counted.report(interrupted=cluster.kernel.stopped)
    if cluster.unassigned:
        clients = report.pop("clients")
        report |= {"central": dict(cluster.unassigned.central.overhead()), "clients": clients}
    return report


def bound_of(config: SimConfig) -> Bound:
    """What the theorems promise under these settings (docs/reference/invariants.md)."""
    # Whoever shares one queue shares all memories.
    capacity = capacity_of(config) * (config.workers if config.router in CENTRAL_ROUTERS else 1)
    if config.host != "ideal":
        return no_bound("the bounds need reserve admission")
    if config.cost is not None:
        return no_bound("the bounds are for the linear cost")
    if not all(change.up for change in config.changes):
        # Its requests are computed again, and their next worker charges for that.
        return no_bound("the bounds need workers that stay")
    if config.scheduler == "dlpm":
        view: View = "client" if config.charge == "input" else "system"
        quantum = config.quantum or signature(DLPM).parameters["quantum"].default
        return dlpm_bound(quantum=quantum, capacity=capacity, view=view)
    if config.scheduler == "vtc":
        if config.skips_unfitting:
            return no_bound("VTC's theorems need a look that stops at a misfit")
        view = "system" if config.charge == "extend" else "client"
        return vtc_bound(capacity=capacity, view=view)
    return no_bound(f"no theorem bounds the gaps of {config.scheduler}")

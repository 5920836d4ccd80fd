"""The summary of a simulation, and the fairness bound that the theorems give for its settings."""

from inspect import signature
from typing import Any

from fairhit.core.service import Weights
from fairhit.policies.dlpm import DLPM
from fairhit_lab.baselines import CENTRAL_ROUTERS, FLEET
from fairhit_lab.metrics.gaps import Bound, View, dlpm_bound, no_bound, vtc_bound
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster, capacity_of
from fairhit_lab.sim.config import SimConfig


def summary_of(config: SimConfig, weights: Weights) -> Summary:
    """Return an empty Summary to observe the run, with its fairness bound and the clients' weights."""
    one_queue = config.replicas if config.router in {*CENTRAL_ROUTERS, FLEET} else 0
    return Summary(bound=bound_of(config), weight_of=weights.of, one_queue=one_queue)


def report_of(cluster: Cluster, counted: Summary) -> dict[str, Any]:
    """Return the report of a finished run (docs/reference/summary.md); `clients` are ClientRows."""
    report = counted.report(interrupted=cluster.kernel.stopped)
    if cluster.unassigned:
        clients = report.pop("clients")
        report |= {"central": dict(cluster.unassigned.central.overhead()), "clients": clients}
    return report


def bound_of(config: SimConfig) -> Bound:
    """Return the fairness bound for these settings, or why there is none (docs/reference/invariants.md)."""
    # Workers behind one central queue count as one server with the memory of all.
    capacity = capacity_of(config) * (config.workers if config.router in CENTRAL_ROUTERS else 1)
    if config.host != "ideal":
        return no_bound("the bounds need reserve admission")
    if config.router == FLEET:
        return no_bound("what is in flight at the engines is not bounded by their memory")
    if config.cost is not None:
        return no_bound("the bounds are for the linear cost")
    if not all(change.up for change in config.changes):
        # The requests of a failed worker are computed again, and their next worker charges for that.
        return no_bound("the bounds need workers that stay")
    if config.scheduler == "dlpm":
        view: View = "client" if config.charge == "input" else "system"
        quantum = config.quantum or signature(DLPM).parameters["quantum"].default
        return dlpm_bound(quantum=quantum, capacity=capacity, view=view)
    if config.scheduler == "vtc":
        if config.skips_unfitting:
            return no_bound("VTC's theorems need a pass that stops at a request that does not fit")
        view = "system" if config.charge == "extend" else "client"
        return vtc_bound(capacity=capacity, view=view)
    return no_bound(f"no theorem bounds the gaps of {config.scheduler}")

"""Shares of entitlement: what clients received against what max-min fairness would have given them.

Jain's index of raw service falls when spare capacity goes to whom it serves. A client's entitlement phi_i
is its part of what was served, by weighted max-min (water-filling) of the demands: no client is entitled
to more than it asked for, and what others leave is divided by weight. x_i / phi_i is its share; below 1 a
client was held back for the sake of another, whatever the third got.
"""

from collections.abc import Iterable

from fairhit.core.request import ClientId


def entitlements(
    clients: Iterable[tuple[ClientId, int, int]], served: float
) -> dict[ClientId, float]:
    """Divide `served` by weighted max-min; `clients` are (client, demand, weight). O(n log n).

    Demands and `served` are in one unit, weights in millionths. Demands that add up to less than `served`
    are met whole. A client without demand has no entitlement.
    """
    asking = sorted(
        (demand / weight, weight, client, demand) for client, demand, weight in clients if demand
    )
    weights = sum(weight for _, weight, _, _ in asking)
    left = float(served)
    found: dict[ClientId, float] = {}
    for _, weight, client, demand in asking:  # who asks for the least, by weight, is filled first
        found[client] = min(float(demand), left * weight / weights)
        left -= found[client]
        weights -= weight
    return found

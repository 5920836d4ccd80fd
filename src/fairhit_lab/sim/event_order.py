"""The order of events at the same instant: pass ends, then arrivals, then pass starts.

Between ends and arrivals come, in this order, cache events that reach the router, what a gateway receives
and sends, workers that fail or join, and cancellations. So a pass that ends at the instant at which its
worker fails has completed, and a request that arrives then is routed to a worker that is up.
"""

# Within a phase: replicas by number, requests by their position in the trace.
_RANKS = 1 << 48
_END, CACHE_EVENTS, GATEWAY, _CHANGE, _CANCEL, _ARRIVE, _START = (
    phase * _RANKS for phase in range(7)
)


def end_priority(replica: int) -> int:
    """Priority of the end of a replica's pass."""
    return _END + replica


def change_priority(position: int) -> int:
    """Priority of the `position`-th failure or join of a worker."""
    return _CHANGE + position


def cancel_priority(position: int) -> int:
    """Priority of the cancellation of the trace's `position`-th request."""
    return _CANCEL + position


def arrival_priority(position: int) -> int:
    """Priority of the arrival, or the start, of the trace's `position`-th request."""
    return _ARRIVE + position


def start_priority(replica: int) -> int:
    """Priority of the start of a replica's pass."""
    return _START + replica

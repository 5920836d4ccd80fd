"""What comes first at one instant (DESIGN 6.3): step ends, then arrivals, then step starts.

News of the caches, workers that fail or join, and callers that leave, in this order, come between the
ends and the arrivals: a pass that ends as its worker fails has ended, and who arrives then goes
where there is a worker.
"""

# Ranks within a phase: replicas by number, requests by their place in the trace.
_RANKS = 1 << 48
_END, NEWS, _CHANGE, _CANCEL, _ARRIVE, _START = (phase * _RANKS for phase in range(6))


def end_priority(replica: int) -> int:
    """Of the end of a replica's pass."""
    return _END + replica


def change_priority(place: int) -> int:
    """Of the `place`-th failure or join."""
    return _CHANGE + place


def cancel_priority(place: int) -> int:
    """Of the cancellation of the trace's `place`-th request."""
    return _CANCEL + place


def arrival_priority(place: int) -> int:
    """Of the arrival, or the start, of the trace's `place`-th request."""
    return _ARRIVE + place


def start_priority(replica: int) -> int:
    """Of the start of a replica's pass."""
    return _START + replica

"""The expected summary, computed in the plainest way from a list of all events, pass by pass.

Everything is worked out from intervals and sums over the whole list; nothing is carried along.
"""

from collections import defaultdict
from itertools import combinations

from fairhit_lab.events import (
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Refill,
    Reject,
    WorkerUpOrDown,
)

ENDS = (Finish, Cancel, Reject)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def rank(samples, percent):
    """The smallest sample that `percent` percent do not exceed, in seconds; None if there is none."""
    ordered = sorted(samples)
    for value in ordered:
        if 100 * sum(other <= value for other in ordered) >= percent * len(ordered):
            return value / 10**6
    return None


def starts(events):
    """When each dispatched request was dispatched first."""
    first = {}
    for event in of(events, Dispatch):
        first.setdefault(event.request, event.t_us)
    return first


def latencies(events, kind, client=None):
    begin = starts(events)
    return [
        event.t_us - begin[event.request]
        for event in of(events, kind)
        if client in {None, event.client}
    ]


def requests(events, client):
    """Ids of all requests of the client that any event names."""
    known = (Dispatch, *ENDS)
    return {event.request for event in of(events, known) if event.client == client}


def tokens(events, client, within=None):
    """(extend, cached, output) of the events that `within` accepts."""
    admitted = [
        event
        for event in of(events, Admit)
        if event.client == client and not event.again and (within is None or within(event))
    ]
    extend = sum(event.extend_len for event in admitted)
    whole = sum(event.input_len for event in admitted)
    output = sum(
        event.counts.get(client, 0)
        for event in of(events, Decode)
        if within is None or within(event)
    )
    return extend, whole - extend, output


def active_intervals(events, client):
    """[begin, end) from a dispatch of a client's first request to the end of its last."""
    count, found = 0, []
    seen = set()
    for event in events:
        if getattr(event, "client", None) != client:
            continue
        if isinstance(event, Dispatch) and event.request not in seen:
            seen.add(event.request)
            if not count:
                found.append([event.t_us, float("inf")])
            count += 1
        elif isinstance(event, ENDS) and event.request in seen:
            count -= 1
            if not count:
                found[-1][1] = event.t_us
    return found


def all_active(events):
    """Says of an event whether every client that was ever dispatched was active."""
    clients = {event.client for event in of(events, Dispatch)}
    intervals = [active_intervals(events, client) for client in clients]

    def inside(event):
        # Passes end before anybody comes or goes at their instant, admissions follow.
        if isinstance(event, Decode):
            return all(any(a < event.t_us <= b for a, b in one) for one in intervals)
        return all(any(a <= event.t_us < b for a, b in one) for one in intervals)

    return inside


def all_active_us(events, end_us):
    clients = {event.client for event in of(events, Dispatch)}
    intervals = [active_intervals(events, client) for client in clients]
    return sum(
        all(any(a <= t < b for a, b in one) for one in intervals) for t in range(end_us)
    ) * bool(clients)


def jain(shares):
    squares = sum(share**2 for share in shares)
    return sum(shares) ** 2 / len(shares) / squares if squares else None


def at_worker(events, number):
    return [event for event in events if getattr(event, "worker", None) == number]


def gaps(events, number, weights, view):
    """The largest gap of each pair at one worker: every pair of instants of every joint interval."""
    total = defaultdict(float)
    waiting = defaultdict(set)
    points = defaultdict(list)  # pair -> values of W_f - W_g in the interval under way
    largest = {}

    def sample():
        for f, g in combinations(sorted(weights), 2):
            if waiting[f] and waiting[g]:
                points[f, g].append(total[f] - total[g])
                gap = max(points[f, g]) - min(points[f, g])
                largest[f, g] = max(largest.get((f, g), 0), round(gap, 6))
            else:
                points[f, g] = []

    for event in at_worker(events, number):
        change_waiting(waiting, event, events)
        sample()  # before it is served, too: it is backlogged up to its admission
        for client, tokens_served in served(event, view):
            total[client] += tokens_served / weights[client]
        sample()
    return largest


def served(event, view):
    """(client, tokens) that it gives."""
    if isinstance(event, Decode):
        return [(client, 2 * count) for client, count in event.counts.items()]
    if isinstance(event, Admit) and not event.again:
        return [(event.client, event.extend_len if view == "system" else event.input_len)]
    return []


def change_waiting(waiting, event, events):
    """Update the set of requests that wait at the event's worker."""
    if isinstance(event, WorkerUpOrDown) and not event.up:
        waiting.clear()
    elif isinstance(event, Enqueue) or (isinstance(event, Preempt) and not is_lost(events, event)):
        waiting[event.client].add(event.request)
    elif isinstance(event, (Admit, Preempt, *ENDS)):
        waiting[event.client].discard(event.request)


def is_lost(events, preempt):
    """Return whether the request's worker failed at this instant, so that it does not wait there."""
    return any(
        isinstance(event, WorkerUpOrDown) and not event.up
        for event in at_worker(events, preempt.worker)
        if event.t_us == preempt.t_us
    )


def idle_us(events, number, end_us):
    """Return how long requests waited at the worker while none ran there."""
    waiting, running, idle, since = set(), set(), 0, 0
    for event in [*at_worker(events, number), None]:
        now = end_us if event is None else event.t_us
        if waiting and not running:
            idle += now - since
        since = now
        if isinstance(event, Enqueue):
            waiting.add(event.request)
        elif isinstance(event, Preempt):
            running.discard(event.request)
            waiting.add(event.request)
            if is_lost(events, event):
                waiting.discard(event.request)
        elif isinstance(event, Admit):
            waiting.discard(event.request)
            running.add(event.request)
        elif isinstance(event, ENDS):
            waiting.discard(event.request)
            running.discard(event.request)
        elif isinstance(event, WorkerUpOrDown) and not event.up:
            waiting.clear()
            running.clear()
    return idle


def preemptions(events, client):
    """Of requests that were running then."""
    count, running = 0, set()
    for event in events:
        if isinstance(event, Admit):
            running.add(event.request)
        elif isinstance(event, Preempt):
            count += event.client == client and event.request in running
            running.discard(event.request)
    return count


def end_us(events):
    """When the last request left or pass ended."""
    return max((event.t_us for event in of(events, (*ENDS, Decode))), default=0)


def refills(events):
    rounds = [event.rounds for event in of(events, Refill)]
    return {"passes": len(rounds), "rounds": sum(rounds)}


def evicted(events):
    return sum(event.tokens for event in of(events, Evict))


def first_tokens(events):
    return {event.request: event.t_us for event in of(events, FirstToken)}

"""Theorems 5.1 and 5.2 as far as they hold: DLPM at every worker behind D2LPM (DESIGN 3.5).

The papers say "backlogged"; the bound holds only while both clients are backlogged at *every*
worker, where it is the sum of the workers' own. That it fails otherwise is a test, too.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.matches import Matches
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request
from fairlead.metrics.fairness import BackloggedGaps
from fairlead.routers.d2lpm import D2LPM
from fairlead.schedulers.dlpm import DLPM
from tests.properties.traffic import CAPACITY, MAX_INPUT, arrivals
from tests.reference.engine import IdealEngine

W_E, W_Q = 1, 2
U = W_E * MAX_INPUT + W_Q * CAPACITY


class EveryWorker:
    """Passes on to the gaps only what happens while a client is backlogged at all workers."""

    def __init__(self, workers, gaps):
        self.workers, self.gaps = workers, gaps
        self.places = {}

    def at(self, worker):
        """The observer of one worker's engine."""
        return _AtWorker(self, worker)

    def begin(self, client, worker):
        self.places.setdefault(client, set()).add(worker)
        if len(self.places[client]) == self.workers:
            self.gaps.begin(client)

    def end(self, client, worker):
        if len(self.places[client]) == self.workers:
            self.gaps.end(client)
        self.places[client].remove(worker)


class _AtWorker:
    def __init__(self, everywhere, worker):
        self.everywhere, self.worker = everywhere, worker

    def begin(self, client):
        self.everywhere.begin(client, self.worker)

    def end(self, client):
        self.everywhere.end(client, self.worker)

    def serve(self, client, amount):
        self.everywhere.gaps.serve(client, amount)


def run_cluster(traffic, *, workers, quantum, worker_quantum, observers=None, charge="extend"):
    """Route each arrival with the truth about every cache; step all workers together."""
    names = [f"w{number}" for number in range(workers)]
    router = D2LPM(quantum=worker_quantum, min_match=1, charge=charge)
    engines = {}
    for name in names:
        router.add_worker(name)
        tree = RadixTree()
        engines[name] = IdealEngine(
            policy=DLPM(cache=tree, quantum=quantum),
            tree=tree,
            capacity=CAPACITY,
            observers=[observers.at(name)] if observers else [],
            on_finish=lambda request, extend_len, name=name: router.settle(
                request, name, extend_len=extend_len, output_len=request.max_tokens
            ),
        )
    todo = list(traffic)
    step = 0
    while todo or any(engine.running or len(engine.scheduler) for engine in engines.values()):
        while todo and todo[0].step <= step:
            request = todo.pop(0).request
            matched = {name: engines[name].tree.match_len(request.prompt) for name in names}
            worker = router.route(request, matches=Matches.of_each(matched))
            extend_len = request.input_len - min(matched[worker], request.input_len - 1)
            router.dispatch(request, worker, extend_len=extend_len)
            engines[worker].arrive(request)
        for engine in engines.values():
            engine.advance()
        step += 1
    return router, engines


@settings(max_examples=150, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=20, max_size=80, max_step=10),
    workers=st.integers(1, 3),
    quantum=st.sampled_from([1, 17, 400]),
    worker_quantum=st.sampled_from([1, 50, 2000]),
)
def test_theorem_5_1_while_backlogged_at_every_worker(traffic, workers, quantum, worker_quantum):
    """[15] D2LPM: |W_f - W_g| <= |W| * 2 (U + Q) while both wait at each of the workers."""
    gaps = BackloggedGaps()
    router, engines = run_cluster(
        traffic,
        workers=workers,
        quantum=quantum,
        worker_quantum=worker_quantum,
        observers=EveryWorker(workers, gaps),
    )

    assert max(gaps.largest.values(), default=0) <= workers * 2 * (U + quantum)
    assert sum(len(engine.finished) for engine in engines.values()) == len(traffic)
    assert all(router.outstanding(worker) == 0 for worker in engines)


def test_theorem_5_1_fails_for_a_client_backlogged_at_one_worker_only():
    """
    [16] f keeps a cached prompt at one worker, where each request costs almost nothing, and sends
    fresh prompts to the other; g takes what f leaves. The gap grows with time, past any bound.
    """

    def gap_after(rounds):
        served = {"f": 0, "g": 0}
        alone, shared = _worker(served), _worker(served)
        order = 0
        for _ in range(rounds):
            for engine, client, prompt in (
                (alone, "g", [("g", order, at) for at in range(20)]),
                (shared, "f", [("f", order, at) for at in range(20)]),
                (shared, "g", [("g2", order, at) for at in range(20)]),
            ):
                order += 1
                engine.arrive(
                    Request(
                        id=str(order),
                        client=client,
                        prompt=tuple(prompt),
                        input_len=20,
                        max_tokens=2,
                        order=order,
                    )
                )
            alone.advance()
            shared.advance()
        return served["g"] - served["f"]

    bound = 2 * 2 * (U + 10)
    assert gap_after(20) < gap_after(40) < gap_after(80)
    assert gap_after(80) > bound


def _worker(served):
    class Sum:
        def begin(self, client):
            pass

        def end(self, client):
            pass

        def serve(self, client, amount):
            served[client] += amount

    tree = RadixTree()
    return IdealEngine(
        policy=DLPM(cache=tree, quantum=10), tree=tree, capacity=CAPACITY, observers=[Sum()]
    )

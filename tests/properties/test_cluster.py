"""DLPM at every worker behind D2LPM: what holds for several engines, and what the papers claim.

They say "backlogged"; Theorems 5.1 and 5.2 hold only while both clients are backlogged at *every*
worker (theorems.py), where the bound is the sum of the workers' own. That they fail otherwise is here.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.request import Request
from fairhit.policies.dlpm import DLPM
from fairhit.routers.d2lpm import D2LPM
from tests.properties.traffic import CAPACITY, MAX_INPUT, arrivals
from tests.reference.cluster import run_cluster
from tests.reference.engine import IdealEngine

W_E, W_Q = 1, 2
U = W_E * MAX_INPUT + W_Q * CAPACITY


@settings(max_examples=100, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=20, max_size=80, max_step=10),
    workers=st.integers(1, 3),
    quantum=st.sampled_from([1, 17, 400]),
    worker_quantum=st.sampled_from([1, 50, 2000]),
)
def test_a_cluster_serves_everybody_and_settles_all_it_charged(
    traffic, workers, quantum, worker_quantum
):
    """[18] D2LPM over DLPM: nothing is lost between them, and nothing stays outstanding."""
    router = D2LPM(quantum=worker_quantum, min_match=1, charge="extend")
    engines = run_cluster(
        traffic,
        workers=workers,
        router=router,
        policy=lambda tree: DLPM(cache=tree, quantum=quantum),
    )

    assert sum(len(engine.finished) for engine in engines.values()) == len(traffic)
    assert all(router.load.tokens(worker) == 0 for worker in engines)


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

"""One queue for all workers, under the rules of DLPM and of `fair`: its bounds, and what its deltas say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.service import TokenCost
from fairhit.policies.dlpm import DLPM
from fairhit.policies.fair import Fair
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.baselines.central_fair import CentralFair
from fairhit_lab.sim.routing.fleet_tree import FleetTree
from tests.properties.traffic import CAPACITY, arrivals
from tests.reference.engine import IdealEngine
from tests.reference.gaps import BackloggedGaps

W_E, W_Q = 1, 2


class Served:
    """Hands on only what was served: who is backlogged is known of the one queue."""

    def __init__(self, gaps):
        self.gaps = gaps

    def begin(self, client):
        pass

    def end(self, client):
        pass

    def serve(self, client, amount):
        self.gaps.serve(client, amount)


class Copy:
    """Copy of a worker's tree at a scheduler elsewhere, kept by the deltas alone."""

    def __init__(self):
        self.number = 0
        self.tree = FleetTree()
        self.tree.add_worker("w")

    def apply(self, delta):
        self.number += 1
        assert delta.number == self.number, "none is lost, none comes before another"
        for grown, tokens, length in delta.changes:
            (self.tree.grew if grown else self.tree.shrank)("w", tokens, length)


class Central:
    """Ideal engines that ask one scheduler for work; each step they look in turn."""

    def __init__(self, *, workers, router, gaps=None):
        self.gaps = gaps or BackloggedGaps()
        self.router = router
        self.router.claimed = self.claimed
        self.engines, self.copies, self.views = {}, {}, {}
        self.waiting = {}
        self.admitted = []
        for number in range(workers):
            self.come(f"w{number}")

    def come(self, name):
        tree = RadixTree()
        view = self.views[name] = self.router.add_worker(name, tree)
        copy = self.copies[name] = Copy()
        take = view.feed.take

        def taken():
            delta = take()
            copy.apply(delta)
            return delta

        view.feed.take = taken
        engine = self.engines[name] = IdealEngine(
            policy=view, tree=tree, capacity=CAPACITY, observers=[Served(self.gaps)]
        )
        for request in self.waiting.values():
            engine.arrive(request)

    def arrive(self, request):
        first = next(iter(self.engines.values()))
        if not first.memory.fits_ever(request):
            return
        if not any(other.client == request.client for other in self.waiting.values()):
            self.gaps.begin(request.client)
        self.waiting[request.id] = request
        for engine in self.engines.values():
            engine.arrive(request)

    def claimed(self, request, worker):
        del self.waiting[request.id]
        self.admitted.append((request.id, worker))
        for name, engine in self.engines.items():
            if name != worker:
                engine.scheduler.cancel(request)
        if not any(other.client == request.client for other in self.waiting.values()):
            self.gaps.end(request.client)

    def run(self, traffic):
        todo = list(traffic)
        step = 0
        while todo or self.waiting or any(engine.running for engine in self.engines.values()):
            while todo and todo[0].step <= step:
                self.arrive(todo.pop(0).request)
            for name, engine in self.engines.items():
                before = self.copies[name].number
                engine.admit_waiting()
                assert self.copies[name].number == before + 1
            for engine in self.engines.values():
                engine.decode()
                engine.tree.check()
            step += 1
            assert step < 10_000, "this does not end"
        return self


@settings(max_examples=120, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=20, max_size=80, max_step=10),
    workers=st.integers(1, 3),
    quantum=st.sampled_from([1, 17, 400]),
)
def test_one_queue_shares_all_memories(traffic, workers, quantum):
    """[30] |W_f - W_g| <= 2 (w_q * sum of M_w + w_e + Q) while both wait in the one queue (A8.4)."""
    gaps = BackloggedGaps()
    central = Central(workers=workers, router=CentralDLPM(quantum=quantum), gaps=gaps).run(traffic)

    bound = 2 * (W_Q * workers * CAPACITY + W_E + quantum)
    assert max(gaps.largest.values(), default=0) <= bound
    assert len(central.admitted) == len({request for request, _ in central.admitted})


@settings(max_examples=120, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=20, max_size=80, max_step=10),
    workers=st.integers(1, 3),
    quantum=st.sampled_from([1, 17, 400]),
    near=st.sampled_from([1, 8]),
)
def test_an_overdraft_of_the_fleet_adds_itself_and_a_prompt(traffic, workers, quantum, near):
    """[41] |W_f - W_g| <= 2 (Q + B + C + H + V), V = w_q * sum of M_w, while both wait in the one queue."""
    gaps = BackloggedGaps()
    router = CentralFair(quantum=quantum, near=near, cost=TokenCost())
    central = Central(workers=workers, router=router, gaps=gaps).run(traffic)

    longest = max(each.request.input_len for each in traffic)
    charge, hit = W_E * max(longest, W_Q), W_E * longest / 10
    bound = 2 * (quantum + min(1024, quantum) + charge + hit + W_Q * workers * CAPACITY)
    assert max(gaps.largest.values(), default=0) <= bound
    assert len(central.admitted) == len({request for request, _ in central.admitted})


@settings(max_examples=60, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=5, max_size=50, max_step=10),
    quantum=st.sampled_from([1, 17, 400]),
)
@pytest.mark.parametrize("rules", ["dlpm", "fair"])
def test_with_one_worker_it_is_the_policy(rules, traffic, quantum):
    """There is nothing central about one queue of one worker."""
    tree = RadixTree()
    if rules == "dlpm":
        policy, router = DLPM(cache=tree, quantum=quantum), CentralDLPM(quantum=quantum)
    else:
        policy = Fair(cache=tree, quantum=quantum, near=8, prepay="none")
        router = CentralFair(quantum=quantum, near=8)
    alone = IdealEngine(policy=policy, tree=tree, capacity=CAPACITY)
    central = Central(workers=1, router=router).run(traffic)

    assert [request for request, _ in central.admitted] == alone.run(traffic).admitted


@settings(max_examples=60, deadline=None)
@given(
    traffic=arrivals(clients="ab", min_size=5, max_size=60, max_step=10),
    workers=st.integers(1, 3),
)
def test_the_deltas_say_all_there_is_to_know(traffic, workers):
    """A copy of each tree, kept by the numbered deltas alone, is that tree after the last one."""
    central = Central(workers=workers, router=CentralDLPM(quantum=17)).run(traffic)

    for name, engine in central.engines.items():
        engine.admit_waiting()  # a last delta
        central.copies[name].tree.check()
        for arrival in traffic:
            prompt = arrival.request.prompt
            known = central.copies[name].tree.match(prompt, len(prompt)).of("w")
            assert known == engine.tree.match_len(prompt)


@settings(max_examples=40, deadline=None)
@given(
    traffic=arrivals(clients="abc", min_size=10, max_size=40, max_step=10),
    lose=st.integers(0, 20),
    gain=st.integers(0, 20),
)
@pytest.mark.parametrize("rules", [CentralDLPM, CentralFair])
def test_workers_come_and_go_and_nothing_is_lost(rules, traffic, lose, gain):
    """Waiting requests are offered to added workers; those of a lost worker are offered elsewhere."""
    central = Central(workers=2, router=rules(quantum=17))
    for place, arrival in enumerate(traffic):
        central.arrive(arrival.request)
        if place == lose:
            central.router.remove_worker("w0")
            del central.engines["w0"]
        if place == gain:
            central.come("w9")
        for engine in central.engines.values():
            engine.admit_waiting()
            engine.decode()
    central.run([])

    fitting = [
        arrival.request.id
        for arrival in traffic
        if arrival.request.input_len + arrival.request.max_tokens <= CAPACITY
    ]
    assert sorted(fitting) == sorted(request for request, _ in central.admitted)
    assert not central.router._offers and not central.router._waiting

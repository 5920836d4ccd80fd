"""Preble's sums and choices, against walking all nodes for each request as its code does."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request
from fairhit_lab.baselines.preble import Preble, prefill_us

WORKERS = ("w0", "w1", "w2")
CAPACITY, WINDOW_US = 30, 1000
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)


class Fleet(RuleBasedStateMachine):
    """Requests are routed, run, end and are forgotten; workers come and go."""

    @initialize()
    def begin(self) -> None:
        self.router = Preble(capacity=CAPACITY, window_us=WINDOW_US)
        self.router._routed = 1000  # warmed up: it balances from the first request on
        self.up: list[str] = []
        self.now_us = self.order = 0
        self.flying: list[tuple[Request, str]] = []
        for worker in WORKERS:
            self.come(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def come(self, worker):
        if worker not in self.up:
            self.router.add_worker(worker)
            self.up.append(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def go(self, worker):
        if worker in self.up and len(self.up) > 1:
            self.router.remove_worker(worker)
            self.up.remove(worker)

    @rule(
        prompt=PROMPTS,
        wait_us=st.integers(0, 400),
        max_tokens=st.integers(1, 50),
        only=st.booleans(),
    )
    def send(self, prompt, wait_us, max_tokens, only):
        self.now_us += wait_us
        self.order += 1
        request = Request(
            id=str(self.order),
            client="a",
            prompt=prompt,
            input_len=len(prompt),
            max_tokens=max_tokens,
            order=self.order,
            arrival_us=self.now_us,
        )
        candidates = set(self.up[:2]) if only else None
        worker = self.router.route(request, matches=PrefixMatches(), candidates=candidates)
        costs = self.naive_costs(prompt, candidates)
        assert costs[worker] == min(costs.values()), (worker, costs)
        self.router.dispatch(request, worker, extend_len=1)
        self.flying.append((request, worker))

    @rule(pick=st.integers(0, 99), first_us=st.integers(0, 300), pace_us=st.integers(0, 300))
    def end(self, pick, first_us, pace_us):
        if self.flying:
            request, worker = self.flying.pop(pick % len(self.flying))
            first_us += request.arrival_us
            self.router.served(
                request, worker, first_us=first_us, end_us=first_us + 9 * pace_us, output_len=10
            )
            self.router.true_up(request, worker, extend_len=1, output_len=10)

    def nodes(self):
        found = [self.router._root]
        for node in found:
            found += (node.children or {}).values()
        return found[1:]

    def naive_costs(self, prompt, candidates):
        """Of the workers E2 chooses from: every node is looked at, an eviction is a sort."""
        pool = [worker for worker in self.up if candidates is None or worker in candidates]
        node, at = self.router.find(prompt)
        own = len(prompt) - at if at < len(prompt) else at - node.start
        if own <= len(prompt) - own:
            while node is not None:
                near = [worker for worker in pool if worker in node.holders]
                if near:
                    pool = near
                    break
                node = node.parent
        return {
            worker: self.naive_cost(worker) + self.naive_eviction(worker, own) for worker in pool
        }

    def naive_cost(self, worker, least=1):
        prefills = decodes = 0
        for node in self.nodes():
            if node.stat is not None and node.stat.count >= least and worker in node.holders:
                own = node.end - node.start
                prefills += node.stat.count * prefill_us(own, node.end) // len(node.holders)
                decodes += node.runs.get(worker, 0) * node.stat.output_len
        return self.router._missed(prefills) + decodes * self.router._loads[worker].pace_us

    def naive_eviction(self, worker, own):
        held = {node for node in self.nodes() if worker in node.holders}
        lost = 0
        while own > 0:
            leaves = [
                node
                for node in held
                if worker not in node.runs and not held & set((node.children or {}).values())
            ]
            if not leaves:
                break
            oldest = min(leaves, key=lambda node: (node.holders[worker].used, node.serial))
            held.remove(oldest)
            own -= oldest.end - oldest.start
            if oldest.stat is not None and oldest.end - oldest.start > oldest.start:
                lost += oldest.stat.count * prefill_us(oldest.end - oldest.start, oldest.end)
        return self.router._missed(lost)

    @invariant()
    def sums_are_what_a_walk_would_find(self):
        router = self.router
        router.check()
        for worker in self.up:
            assert router.cost_us(worker) == self.naive_cost(worker)
            assert router._twice_us(worker) == self.naive_cost(worker, least=2)
            running = any(to == worker for _, to in self.flying)
            assert running or router.tokens[worker] <= CAPACITY
        assert all(stat.count > 0 for stat in router._stats)
        assert sum(stat.count for stat in router._stats) == len(router._window)

    def teardown(self):
        for request, worker in self.flying:
            self.router.true_up(request, worker, extend_len=1, output_len=1)
        assert not any(node.runs for node in self.nodes())
        self.router.check()


Fleet.TestCase.settings = settings(
    deadline=None,
    max_examples=80,
    stateful_step_count=50,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
TestFleet = Fleet.TestCase

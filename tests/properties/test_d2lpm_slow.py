"""[17] D2LPM chooses what Algorithm 2, repaired and written out the slow way, leaves to choose from."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.routers.d2lpm import D2LPM
from tests.properties.test_routers import STEPS, Run, Step
from tests.reference.d2lpm import SlowD2LPM


class Beside:
    """A router that asks both, and compares choices and counters."""

    def __init__(self, *, quantum: int, min_match: int, charge: str) -> None:
        self.fast = D2LPM(quantum=quantum, min_match=min_match, charge=charge)  # type: ignore[arg-type]
        self.slow = SlowD2LPM(quantum=quantum, min_match=min_match, charge_input=charge == "input")
        self.sent: dict[object, tuple[str, int]] = {}

    def add_worker(self, worker):
        self.fast.add_worker(worker)
        self.slow.add_worker(worker)

    def remove_worker(self, worker):
        self.fast.remove_worker(worker)
        self.slow.remove_worker(worker)
        self.sent = {request: at for request, at in self.sent.items() if at[0] != worker}

    def route(self, request, *, matches: PrefixMatches, candidates=None):
        chosen = self.fast.route(request, matches=matches, candidates=candidates)
        wanted = self.slow.workers if candidates is None else list(candidates)
        best = self.slow.best(request.client, {worker: matches.of(worker) for worker in wanted})
        assert chosen in best
        assert self.fast.load.tokens(chosen) == min(self.fast.load.tokens(w) for w in best)
        self.compare(request.client)
        return chosen

    def dispatch(self, request, worker, *, extend_len):
        self.fast.dispatch(request, worker, extend_len=extend_len)
        self.slow.pay(request.client, worker, self.slow.prompt(request, extend_len))
        self.sent[request] = (worker, extend_len)
        self.compare(request.client)

    def true_up(self, request, worker, *, extend_len, output_len):
        self.fast.true_up(request, worker, extend_len=extend_len, output_len=output_len)
        at = self.sent.pop(request, None)
        if at is None or at[0] != worker:  # it is gone, and so is what was assumed of it
            return
        truth = self.slow.prompt(request, extend_len) + 2 * output_len if extend_len else 0
        self.slow.pay(request.client, worker, truth - self.slow.prompt(request, at[1]))
        self.compare(request.client)

    def compare(self, client):
        for worker in self.slow.workers:
            assert self.fast.deficit(client, worker) == self.slow.deficit(client, worker)


@pytest.mark.parametrize("charge", ["extend", "input"])
@settings(deadline=None, max_examples=150)
@given(steps=STEPS, quantum=st.sampled_from([1, 40, 400]), min_match=st.sampled_from([1, 64, 300]))
def test_every_choice_and_counter_is_that_of_the_algorithm(
    charge: str, steps: list[Step], quantum: int, min_match: int
) -> None:
    Run(Beside(quantum=quantum, min_match=min_match, charge=charge)).play(steps)  # type: ignore[arg-type]

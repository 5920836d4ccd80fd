"""What every router keeps, and what D2LPM adds to it (DESIGN 3.4)."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.policy import Router
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.in_flight_load import load_of
from fairhit_lab.baselines import ALL_ROUTERS
from tests.unit.routers.asking import QUANTUM, choose, d2lpm, request

WORKERS = ("w0", "w1", "w2")


@dataclass(frozen=True)
class Step:
    """One event: a request arrives or ends, a worker is added or removed."""

    what: str
    client: str
    worker: int
    input_len: int
    matched: tuple[int, ...]
    output_len: int
    pick: int
    prompt: str  # for routers that keep an index of their own


# A busy machine is no counter-example.
unhurried = settings(deadline=None, max_examples=60)

STEPS = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(["arrive"] * 6 + ["end"] * 4 + ["move", "down", "up"]),
        client=st.sampled_from(["a", "b", "c"]),
        worker=st.integers(0, len(WORKERS) - 1),
        input_len=st.integers(1, 400),
        matched=st.tuples(*[st.integers(0, 400)] * len(WORKERS)),
        output_len=st.integers(0, 200),
        pick=st.integers(0, 1 << 16),
        prompt=st.text("ab", max_size=9),
    ),
    max_size=60,
)


@dataclass
class Run:
    """A router with its workers and what is in flight; records each choice."""

    router: Router
    up: list[str] = field(default_factory=list)
    in_flight: list[tuple[Request, str, int]] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for worker in WORKERS:
            self.add(worker)

    def add(self, worker: str) -> None:
        self.router.add_worker(worker)
        self.up.append(worker)

    def play(self, steps: list[Step]) -> "Run":
        for order, step in enumerate(steps):
            getattr(self, "on_" + step.what)(step, order)
        return self

    def send(self, request: Request, matched: dict[str, int]) -> None:
        chosen = choose(self.router, request, matched)
        if len(matched) == len(self.up):
            everyone = self.router.route(request, matches=PrefixMatches.of_each(matched))
            assert everyone == chosen, "asking twice, and naming no client, changes nothing"
        assert chosen in matched, "only candidates are chosen"
        self.check_choice(request, chosen)
        extend_len = max(1, request.input_len - matched[chosen])
        self.router.dispatch(request, chosen, extend_len=extend_len)
        self.in_flight.append((request, chosen, extend_len))
        self.choices.append(chosen)

    def check_choice(self, request: Request, chosen: str) -> None:
        if isinstance(self.router, D2LPM):
            deficit = self.router.deficit(request.client, chosen)
            assert 0 < deficit <= self.router.quantum_of(request.client)

    def on_arrive(self, step: Step, order: int) -> None:
        if self.up:
            matched = {w: min(step.matched[WORKERS.index(w)], step.input_len) for w in self.up}
            arrived = request(step.client, order, input_len=step.input_len, prompt=step.prompt)
            self.send(arrived, matched)

    def on_end(self, step: Step, order: int) -> None:
        if self.in_flight:
            done, worker, extend_len = self.in_flight.pop(step.pick % len(self.in_flight))
            truth = max(1, extend_len - step.matched[0])
            self.router.true_up(done, worker, extend_len=truth, output_len=step.output_len)

    def on_move(self, step: Step, order: int) -> None:
        """Fail a request: its charge is refunded, and another worker is sent it."""
        if self.in_flight and len(self.up) > 1:
            moved, worker, _ = self.in_flight.pop(step.pick % len(self.in_flight))
            self.router.true_up(moved, worker, extend_len=0, output_len=0)
            self.send(moved, {w: 0 for w in self.up if w != worker})

    def on_down(self, step: Step, order: int) -> None:
        worker = WORKERS[step.worker]
        if worker in self.up:
            self.up.remove(worker)
            self.router.remove_worker(worker)

    def on_up(self, step: Step, order: int) -> None:
        if WORKERS[step.worker] not in self.up:
            self.add(WORKERS[step.worker])


@pytest.mark.parametrize("name", ALL_ROUTERS)
@unhurried
@given(steps=STEPS)
def test_a_candidate_is_chosen_and_all_work_in_flight_is_settled(
    name: str, steps: list[Step]
) -> None:
    """
    Engines come, go and fail while requests are under way. Whatever happens, a request goes to an
    engine that can take it, and once all have ended no engine is thought to be busy.
    """
    run = Run(ALL_ROUTERS[name]()).play(steps)

    for done, worker, extend_len in run.in_flight:
        run.router.true_up(done, worker, extend_len=extend_len, output_len=3)

    load = load_of(run.router)
    if load is not None:
        assert [0] * len(run.up) == [load.tokens(worker) for worker in run.up]


@pytest.mark.parametrize("name", ALL_ROUTERS)
@unhurried
@given(steps=STEPS)
def test_the_same_events_give_the_same_choices(name: str, steps: list[Step]) -> None:
    assert (
        Run(ALL_ROUTERS[name]()).play(steps).choices == Run(ALL_ROUTERS[name]()).play(steps).choices
    )


@pytest.mark.parametrize("charge", ["extend", "input"])
@unhurried
@given(steps=STEPS, weight=st.sampled_from(["0.25", "1", "3"]))
def test_a_counter_never_exceeds_its_quantum(charge: str, steps: list[Step], weight: str) -> None:
    """
    A refill raises only what is not positive, and an estimate that is given back cannot pile up:
    no client can save credit for one engine and then flood it.
    """
    router = D2LPM(quantum=QUANTUM, charge=charge, weights=Weights({"a": weight}))  # type: ignore[arg-type]
    run = Run(router).play(steps)

    for client in "abc":
        full = router.quantum_of(client)
        assert all(router.deficit(client, worker) <= full for worker in run.up)


@unhurried
@given(debt=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_the_refill_ends_with_the_fewest_rounds_that_make_a_worker_available(
    debt: int, other: int
) -> None:
    """The printed loop never looks at G_avail again (A6.1); looping as meant gives the same."""
    router = d2lpm()
    for order, (worker, spent) in enumerate(zip(WORKERS[:2], (debt, other), strict=True)):
        router.dispatch(request("a", order), worker, extend_len=QUANTUM + spent)
    expected = {"w0": -debt, "w1": -other}
    while not any(q > 0 for q in expected.values()):
        expected = {worker: q + QUANTUM for worker, q in expected.items()}

    choose(router, request("a", 9), {"w0": 0, "w1": 0})

    assert {w: q * UNITS_PER_TOKEN for w, q in expected.items()} == {
        w: router.deficit("a", w) for w in expected
    }

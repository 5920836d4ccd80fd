"""What every router keeps, and what D2LPM adds to it (DESIGN 3.4)."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.protocols import Router
from fairlead.core.request import Request
from fairlead.core.service import UNITS_PER_TOKEN, Weights
from fairlead.routers import ROUTERS
from fairlead.routers.d2lpm import D2LPM

WORKERS = ("w0", "w1", "w2")
QUANTUM = 100


@dataclass(frozen=True)
class Step:
    """One thing that happens: a request arrives, one ends, a worker comes or goes."""

    what: str
    client: str
    worker: int
    input_len: int
    matched: tuple[int, ...]
    output_len: int
    pick: int


# A busy machine is no counter-example.
unhurried = settings(deadline=None)

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
        chosen = self.router.route(request, matched=matched)
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
            self.send(request(step.client, order, input_len=step.input_len), matched)

    def on_end(self, step: Step, order: int) -> None:
        if self.in_flight:
            done, worker, extend_len = self.in_flight.pop(step.pick % len(self.in_flight))
            truth = max(1, extend_len - step.matched[0])
            self.router.settle(done, worker, extend_len=truth, output_len=step.output_len)

    def on_move(self, step: Step, order: int) -> None:
        """Its worker failed it: the charge goes back, and another worker gets it."""
        if self.in_flight and len(self.up) > 1:
            moved, worker, _ = self.in_flight.pop(step.pick % len(self.in_flight))
            self.router.settle(moved, worker, extend_len=0, output_len=0)
            self.send(moved, {w: 0 for w in self.up if w != worker})

    def on_down(self, step: Step, order: int) -> None:
        worker = WORKERS[step.worker]
        if worker in self.up:
            self.up.remove(worker)
            self.router.remove_worker(worker)

    def on_up(self, step: Step, order: int) -> None:
        if WORKERS[step.worker] not in self.up:
            self.add(WORKERS[step.worker])


def request(client: str, order: int, *, input_len: int = 100, max_tokens: int = 500) -> Request:
    return Request(
        id=str(order),
        client=client,
        prompt=(),
        input_len=input_len,
        max_tokens=max_tokens,
        order=order,
    )


def d2lpm(**settings: object) -> D2LPM:
    router = D2LPM(**{"quantum": QUANTUM, "min_match": 10, **settings})  # type: ignore[arg-type]
    for worker in WORKERS[:2]:
        router.add_worker(worker)
    return router


@pytest.mark.parametrize("name", ROUTERS)
@unhurried
@given(steps=STEPS)
def test_a_candidate_is_chosen_and_all_work_in_flight_is_settled(
    name: str, steps: list[Step]
) -> None:
    """
    Engines come, go and fail while requests are under way. Whatever happens, a request goes to an
    engine that can take it, and once all have ended no engine is thought to be busy.
    """
    run = Run(ROUTERS[name]()).play(steps)

    for done, worker, extend_len in run.in_flight:
        run.router.settle(done, worker, extend_len=extend_len, output_len=3)

    if hasattr(run.router, "outstanding"):
        assert [0] * len(run.up) == [run.router.outstanding(worker) for worker in run.up]


@pytest.mark.parametrize("name", ROUTERS)
@unhurried
@given(steps=STEPS)
def test_the_same_events_give_the_same_choices(name: str, steps: list[Step]) -> None:
    assert Run(ROUTERS[name]()).play(steps).choices == Run(ROUTERS[name]()).play(steps).choices


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

    router.route(request("a", 9), matched={"w0": 0, "w1": 0})

    assert {w: q * UNITS_PER_TOKEN for w, q in expected.items()} == {
        w: router.deficit("a", w) for w in expected
    }


def test_an_estimate_given_back_after_a_refill_is_not_saved_up() -> None:
    """Two requests in flight take both counters below zero; a refill comes, and then both fail."""
    router = d2lpm()
    lost = {worker: request("a", order) for order, worker in enumerate(("w0", "w1"))}
    for worker, sent in lost.items():
        router.dispatch(sent, worker, extend_len=QUANTUM + 50)
    router.route(request("a", 2), matched={"w0": 0, "w1": 0})
    for worker, sent in lost.items():
        router.settle(sent, worker, extend_len=0, output_len=0)

    assert [router.deficit("a", w) for w in lost] == [router.quantum_of("a")] * 2


def test_a_worker_that_cannot_serve_a_request_is_refilled_no_further_than_it_needs() -> None:
    """A model only w0 has: w0 owes nine quanta, w1 a little, and must not gain the nine."""
    router = d2lpm()
    router.dispatch(request("a", 0), "w0", extend_len=10 * QUANTUM)
    router.dispatch(request("a", 1), "w1", extend_len=QUANTUM + 10)
    router.route(request("a", 2), matched={"w0": 0})

    assert router.deficit("a", "w0") == QUANTUM * UNITS_PER_TOKEN
    assert router.deficit("a", "w1") == (QUANTUM - 10) * UNITS_PER_TOKEN


def test_a_client_stays_with_its_prefix_until_its_quantum_is_used() -> None:
    """With 40 new tokens a turn and a quantum of 100, three turns stay and the fourth moves."""
    router = d2lpm()
    chosen = []
    for order in range(4):
        turn = request("a", order, input_len=100)
        worker = router.route(turn, matched={"w0": 60, "w1": 0})
        router.dispatch(turn, worker, extend_len=40)
        chosen.append(worker)

    assert chosen == ["w0", "w0", "w0", "w1"]


def test_the_second_best_match_counts_when_the_best_worker_is_used_up() -> None:
    """A6.5: the printed rule falls back to the shortest queue and forgets every other match."""
    router = d2lpm()
    router.add_worker("w2")
    router.dispatch(request("a", 0), "w0", extend_len=QUANTUM)
    router.dispatch(request("b", 1), "w1", extend_len=50)  # w1 is busier than w2

    assert router.route(request("a", 2), matched={"w0": 90, "w1": 80, "w2": 0}) == "w1"


def test_a_common_first_token_does_not_gather_everybody_on_one_worker() -> None:
    """A6.6: below the minimum benefit, the shorter queue wins."""
    router = d2lpm(min_match=10)
    router.dispatch(request("b", 0), "w0", extend_len=50)

    assert router.route(request("a", 1), matched={"w0": 9, "w1": 0}) == "w1"
    assert router.route(request("a", 2), matched={"w0": 10, "w1": 0}) == "w0"


def test_clients_spread_over_idle_workers() -> None:
    """A6.7: with one answer for all ties, every new client would begin at the first worker."""
    router = d2lpm()
    firsts = Counter(
        router.route(request(f"client-{n}", n), matched={"w0": 0, "w1": 0}) for n in range(100)
    )

    assert min(firsts["w0"], firsts["w1"]) > 25


def test_a_new_worker_is_used_at_once() -> None:
    """A6.9: started at zero it would wait until every other worker was used up."""
    router = d2lpm()
    for order, worker in enumerate(("w0", "w1")):
        router.dispatch(request("a", order), worker, extend_len=50)
    router.add_worker("w2")

    assert router.route(request("a", 2), matched=dict.fromkeys(("w0", "w1", "w2"), 0)) == "w2"


def test_a_worker_that_comes_back_owes_nothing_for_what_it_lost() -> None:
    """Requests of its earlier life end later; they must not touch the counters of the new one."""
    router = d2lpm()
    lost = request("a", 0)
    router.dispatch(lost, "w0", extend_len=80)
    router.remove_worker("w0")
    router.add_worker("w0")
    router.settle(lost, "w0", extend_len=80, output_len=50)

    assert router.deficit("a", "w0") == router.quantum_of("a")
    assert router.outstanding("w0") == 0


def test_charging_the_whole_input_drives_a_client_off_its_cache() -> None:
    """
    A6.2: two clients send prompts of 100 tokens; one has 90 of them cached. Charged as printed, it
    leaves its cache as early as the one that has nothing there.
    """

    def stays(charge: str) -> int:
        router = d2lpm(charge=charge, quantum=500)
        for order in range(100):
            turn = request("a", order, input_len=100)
            if router.route(turn, matched={"w0": 90, "w1": 0}) != "w0":
                return order
            router.dispatch(turn, "w0", extend_len=10)
        return 100

    assert (stays("input"), stays("extend")) == (5, 50)


def test_the_truth_replaces_the_estimate() -> None:
    """The engine had cached more than was thought; only what it computed stays charged."""
    router = d2lpm()
    sent = request("a", 0, input_len=90)
    router.dispatch(sent, "w0", extend_len=90)
    router.settle(sent, "w0", extend_len=10, output_len=20)

    assert router.deficit("a", "w0") == (QUANTUM - 10 - 2 * 20) * UNITS_PER_TOKEN


def test_the_table_of_counters_is_bounded() -> None:
    """A thousand names from one caller take the place of ten, the longest unseen first."""
    router = d2lpm(max_clients=10)
    sent = [request(f"c{order}", order) for order in range(1000)]
    for each in sent:
        router.dispatch(each, "w0", extend_len=50)

    full = [router.deficit(f"c{n}", "w0") == router.quantum_of("x") for n in range(1000)]
    assert full == [True] * 990 + [False] * 10
    for each in sent:  # those that come back after being forgotten bring no counter with them
        router.settle(each, "w0", extend_len=50, output_len=9)
    assert len(router._deficits["w0"]) == 10


def test_weights_scale_the_quantum() -> None:
    router = d2lpm(weights=Weights({"gold": "2.5"}))

    assert router.quantum_of("gold") == 250 * UNITS_PER_TOKEN
    assert router.quantum_of("other") == 100 * UNITS_PER_TOKEN


def test_round_robin_takes_turns_and_least_loaded_counts_work() -> None:
    turns = ROUTERS["round-robin"]()
    load = ROUTERS["least-loaded"]()
    chosen: dict[str, list[str]] = {"turns": [], "load": []}
    for router, name in ((turns, "turns"), (load, "load")):
        router.add_worker("w0")
        router.add_worker("w1")
        for order, extend_len in enumerate((1000, 10, 10, 10)):
            sent = request("a", order)
            worker = router.route(sent, matched={"w0": 0, "w1": 0})
            router.dispatch(sent, worker, extend_len=extend_len)
            chosen[name].append(worker)

    assert chosen == {"turns": ["w0", "w1", "w0", "w1"], "load": ["w0", "w1", "w1", "w1"]}

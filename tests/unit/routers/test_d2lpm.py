"""D2LPM by example: what it adds to the shared suite of the routers (DESIGN 3.4)."""

from collections import Counter

import pytest

from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.routers.d2lpm import D2LPM
from tests.unit.routers.asking import QUANTUM, choose, d2lpm, request


def test_an_estimate_given_back_after_a_refill_is_not_saved_up() -> None:
    """Two requests in flight take both counters below zero, a refill raises them, and then both fail."""
    router = d2lpm()
    lost = {worker: request("a", order) for order, worker in enumerate(("w0", "w1"))}
    for worker, sent in lost.items():
        router.dispatch(sent, worker, extend_len=QUANTUM + 50)
    choose(router, request("a", 2), {"w0": 0, "w1": 0})
    for worker, sent in lost.items():
        router.true_up(sent, worker, extend_len=0, output_len=0)

    assert [router.deficit("a", w) for w in lost] == [router.quantum_of("a")] * 2


def test_a_worker_that_cannot_serve_a_request_is_refilled_no_further_than_it_needs() -> None:
    """Only w0 serves the model: the debt at w0 is nine quanta, and w1 must not gain nine in the refill."""
    router = d2lpm()
    router.dispatch(request("a", 0), "w0", extend_len=10 * QUANTUM)
    router.dispatch(request("a", 1), "w1", extend_len=QUANTUM + 10)
    choose(router, request("a", 2), {"w0": 0})

    assert router.deficit("a", "w0") == QUANTUM * UNITS_PER_TOKEN
    assert router.deficit("a", "w1") == (QUANTUM - 10) * UNITS_PER_TOKEN


def test_a_client_stays_with_its_prefix_until_its_quantum_is_used() -> None:
    """With 40 new tokens a turn and a quantum of 100, three turns stay and the fourth moves."""
    router = d2lpm()
    chosen = []
    for order in range(4):
        turn = request("a", order, input_len=100)
        worker = choose(router, turn, {"w0": 60, "w1": 0})
        router.dispatch(turn, worker, extend_len=40)
        chosen.append(worker)

    assert chosen == ["w0", "w0", "w0", "w1"]


def test_the_second_best_match_counts_when_the_best_worker_is_used_up() -> None:
    """The printed rule falls back to the shortest queue, and ignores every other match."""
    router = d2lpm()
    router.add_worker("w2")
    router.dispatch(request("a", 0), "w0", extend_len=QUANTUM)
    router.dispatch(request("b", 1), "w1", extend_len=50)  # w1 is busier than w2

    assert choose(router, request("a", 2), {"w0": 90, "w1": 80, "w2": 0}) == "w1"


def test_a_common_first_token_does_not_gather_everybody_on_one_worker() -> None:
    """Below the minimum match, the shorter queue wins."""
    router = d2lpm(min_match=10)
    router.dispatch(request("b", 0), "w0", extend_len=50)

    assert choose(router, request("a", 1), {"w0": 9, "w1": 0}) == "w1"
    assert choose(router, request("a", 2), {"w0": 10, "w1": 0}) == "w0"


def test_clients_spread_over_idle_workers() -> None:
    """With one rule for all ties, every new client would begin at the first worker."""
    router = d2lpm()
    firsts = Counter(
        choose(router, request(f"client-{n}", n), {"w0": 0, "w1": 0}) for n in range(100)
    )

    assert min(firsts["w0"], firsts["w1"]) > 25


def test_a_new_worker_is_used_at_once() -> None:
    """With a counter of zero it would be chosen only after every other worker was used up."""
    router = d2lpm()
    for order, worker in enumerate(("w0", "w1")):
        router.dispatch(request("a", order), worker, extend_len=50)
    router.add_worker("w2")

    assert choose(router, request("a", 2), dict.fromkeys(("w0", "w1", "w2"), 0)) == "w2"


def test_a_worker_that_returns_has_no_debt_from_before() -> None:
    """Requests from before the worker was removed end later, and must not change its new counters."""
    router = d2lpm()
    lost = request("a", 0)
    router.dispatch(lost, "w0", extend_len=80)
    router.remove_worker("w0")
    router.add_worker("w0")
    router.true_up(lost, "w0", extend_len=80, output_len=50)

    assert router.deficit("a", "w0") == router.quantum_of("a")
    assert router.load.tokens("w0") == 0


def test_charging_the_whole_input_drives_a_client_off_its_cache() -> None:
    """
    A6.2: two clients send prompts of 100 tokens; one has 90 of them cached. Charged as printed, it
    leaves its cache as early as the one that has nothing there.
    """

    def stays(charge: str) -> int:
        router = d2lpm(charge=charge, quantum=500)
        for order in range(100):
            turn = request("a", order, input_len=100)
            if choose(router, turn, {"w0": 90, "w1": 0}) != "w0":
                return order
            router.dispatch(turn, "w0", extend_len=10)
        return 100

    assert (stays("input"), stays("extend")) == (5, 50)


def test_the_truth_replaces_the_estimate() -> None:
    """The engine had cached more than estimated; only the computed tokens stay charged."""
    router = d2lpm()
    sent = request("a", 0, input_len=90)
    router.dispatch(sent, "w0", extend_len=90)
    router.true_up(sent, "w0", extend_len=10, output_len=20)

    assert router.deficit("a", "w0") == (QUANTUM - 10 - 2 * 20) * UNITS_PER_TOKEN


def test_the_table_of_counters_is_bounded() -> None:
    """A thousand client names evict ten records, the least recently used first."""
    router = d2lpm(max_clients=10)
    sent = [request(f"c{order}", order) for order in range(1000)]
    for each in sent:
        router.dispatch(each, "w0", extend_len=50)

    full = [router.deficit(f"c{n}", "w0") == router.quantum_of("x") for n in range(1000)]
    assert full == [True] * 990 + [False] * 10
    for each in sent:  # those that come back after being forgotten bring no counter with them
        router.true_up(each, "w0", extend_len=50, output_len=9)
    assert len(router._accounts) == 10


def test_weights_scale_the_quantum() -> None:
    router = d2lpm(weights=Weights({"gold": "2.5"}))

    assert router.quantum_of("gold") == 250 * UNITS_PER_TOKEN
    assert router.quantum_of("other") == 100 * UNITS_PER_TOKEN


def in_debt(overdraft: int) -> D2LPM:
    """A router at whose idle w0 the client "a" has a debt of half a quantum, and none at w1."""
    router, sent, cost = d2lpm(overdraft=overdraft), request("a", 0), QUANTUM * 3 // 2
    router.dispatch(sent, "w0", extend_len=cost)
    router.true_up(sent, "w0", extend_len=cost, output_len=0)
    assert router.deficit("a", "w0") == -QUANTUM // 2 * UNITS_PER_TOKEN
    return router


@pytest.mark.parametrize(
    ("overdraft", "cached", "chosen"),
    [
        (QUANTUM, 90, "w0"),
        (QUANTUM, 89, "w1"),
        (QUANTUM // 2 + 1, 90, "w0"),
        (QUANTUM // 2, 90, "w1"),
        (0, 90, "w1"),
    ],
)
def test_within_the_overdraft_a_prompt_cached_to_nine_tenths_stays(
    overdraft: int, cached: int, chosen: str
) -> None:
    assert choose(in_debt(overdraft), request("a", 1), {"w0": cached, "w1": 0}) == chosen


@pytest.mark.parametrize(("backlog", "chosen"), [(359, "w0"), (360, "w1")])
def test_the_overdraft_does_not_count_at_a_worker_with_too_long_a_backlog(
    backlog: int, chosen: str
) -> None:
    """Four times the 90 tokens that the match saves are the longest backlog for it, outputs included."""
    router = in_debt(QUANTUM)
    router.dispatch(request("b", 1, max_tokens=1), "w0", extend_len=backlog)

    assert choose(router, request("a", 2), {"w0": 90, "w1": 0}) == chosen

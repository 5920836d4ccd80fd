"""The routers that ignore caches, by example."""

from collections import Counter

import pytest

from fairhit.core.policy import Router
from fairhit.errors import ConfigError
from fairhit.routers import make_router
from fairhit_lab.baselines import ALL_ROUTERS
from tests.unit.routers.asking import choose, request


def fleet(name: str, *workers: str, **settings: object) -> Router:
    router = make_router(name, routers=ALL_ROUTERS, **settings)
    for worker in workers:
        router.add_worker(worker)
    return router


def chosen(router: Router, *jobs: tuple[str, int], workers: tuple[str, ...]) -> str:
    """Route requests of (client, tokens to compute) in sequence; return their workers."""
    path = []
    for order, (client, extend_len) in enumerate(jobs):
        sent = request(client, order)
        worker = choose(router, sent, dict.fromkeys(workers, 0))
        router.dispatch(sent, worker, extend_len=extend_len)
        path.append(worker)
    return " ".join(path)


def test_round_robin_takes_turns() -> None:
    router = fleet("round-robin", "u", "v", "w")
    jobs = [("a", 1000), ("a", 10), ("b", 10), ("a", 10)]

    assert chosen(router, *jobs, workers=("u", "v", "w")) == "u v w u"
    router.add_worker("x")  # never used: it comes next
    assert chosen(router, *jobs, workers=("u", "v", "w", "x")) == "x v w u"


def test_least_loaded_counts_work() -> None:
    router = fleet("least-loaded", "u", "v")
    jobs = [("a", 1000), ("a", 10), ("a", 10), ("a", 10)]

    assert chosen(router, *jobs, workers=("u", "v")) == "u v v v"


def test_preble_by_a_ratio_follows_half_of_a_prompt_and_no_less() -> None:
    router = fleet("preble-ratio", "u", "v")
    router.dispatch(request("a", 0), "u", extend_len=1000)

    assert (
        choose(router, request("a", 1), {"u": 50, "v": 49}) == "u"
    )  # of 100 tokens, though it is busy
    assert choose(router, request("a", 2), {"u": 49, "v": 0}) == "v"
    assert choose(router, request("a", 3), {"u": 60, "v": 60}) == "v"  # of equals the least loaded


def test_each_client_goes_round_by_itself() -> None:
    """Requests of other clients in between do not make a client skip a worker."""
    router = fleet("client-round-robin", "u", "v", "w")
    jobs = [(client, 10) for client in "abacabadaaba"]
    workers = ("u", "v", "w")
    path = chosen(router, *jobs, workers=workers).split()
    of_a = [worker for worker, (client, _) in zip(path, jobs, strict=True) if client == "a"]

    begin = workers.index(of_a[0])
    assert of_a == [workers[(begin + step) % 3] for step in range(len(of_a))]


def test_clients_do_not_all_begin_at_the_first_worker() -> None:
    """A burst of new clients would otherwise go to one worker after the other, all together."""
    router = fleet("client-round-robin", "u", "v", "w", "x")
    jobs = [(f"client {n}", 10) for n in range(200)]
    firsts = Counter(chosen(router, *jobs, workers=("u", "v", "w", "x")).split())

    assert min(firsts[worker] for worker in "uvwx") > 25


def test_going_round_survives_a_worker_that_leaves() -> None:
    router = fleet("client-round-robin", "u", "v", "w")
    workers = ("u", "v", "w")
    last = chosen(router, ("a", 1), workers=workers)
    after = workers[(workers.index(last) + 2) % 3]
    gone = workers[(workers.index(last) + 1) % 3]
    router.remove_worker(gone)

    assert chosen(router, ("a", 1), workers=tuple(w for w in workers if w != gone)) == after


def test_round_robin_by_client_counts_requests_and_not_their_work() -> None:
    """With alternating long and short requests, one of two workers gets all the long ones."""
    router = fleet("client-round-robin", "u", "v")
    path = chosen(router, *[("a", 1000), ("a", 1)] * 20, workers=("u", "v")).split()

    assert len(set(path[::2])) == 1


def test_of_two_drawn_the_less_loaded_is_taken() -> None:
    """With one overloaded worker, the others get every request except when it is drawn twice."""
    router = fleet("power-of-two", "u", "v", "w", "x")
    router.dispatch(request("b", 999), "u", extend_len=10**9)
    jobs = [("a", 10)] * 400
    path = Counter(chosen(router, *jobs, workers=("u", "v", "w", "x")).split())

    assert "u" not in path
    assert min(path[worker] for worker in "vwx") > 100


def test_another_seed_draws_otherwise() -> None:
    jobs = [("a", 10)] * 50
    workers = ("u", "v", "w", "x")
    paths = {
        chosen(fleet("power-of-two", *workers, seed=n), *jobs, workers=workers) for n in (1, 1, 2)
    }

    assert len(paths) == 2


def test_a_wrong_name_or_setting_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^router: expected one of round-robin, .*, got 'x'$"):
        make_router("x")
    with pytest.raises(ConfigError, match=r"^router round-robin has no setting 'min_match'$"):
        make_router("round-robin", min_match=3)
    make_router("round-robin", min_match=None)

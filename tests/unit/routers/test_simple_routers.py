"""The routers that look at no cache, by example."""

from fairlead.routers import ROUTERS
from tests.unit.routers.asking import choose, request


def test_round_robin_takes_turns_and_least_loaded_counts_work() -> None:
    turns = ROUTERS["round-robin"]()
    load = ROUTERS["least-loaded"]()
    chosen: dict[str, list[str]] = {"turns": [], "load": []}
    for router, name in ((turns, "turns"), (load, "load")):
        router.add_worker("w0")
        router.add_worker("w1")
        for order, extend_len in enumerate((1000, 10, 10, 10)):
            sent = request("a", order)
            worker = choose(router, sent, {"w0": 0, "w1": 0})
            router.dispatch(sent, worker, extend_len=extend_len)
            chosen[name].append(worker)

    assert chosen == {"turns": ["w0", "w1", "w0", "w1"], "load": ["w0", "w1", "w1", "w1"]}

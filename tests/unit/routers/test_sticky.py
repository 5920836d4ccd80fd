"""Requests with one routing key are sent to one worker, as long as it is up."""

from collections import Counter

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request
from fairhit.routers.sticky import Sticky

NONE = PrefixMatches(())
WORKERS = ("u", "v", "w")
KEYS = [f"session-{number}" for number in range(300)]


def asked(key: str, order: int = 0) -> Request:
    return Request(
        id=str(order),
        client="a",
        prompt=(),
        input_len=9,
        max_tokens=9,
        order=order,
        routing_key=key,
    )


def fleet(*workers: str, **settings: int) -> Sticky:
    router = Sticky(**settings)
    for worker in workers or WORKERS:
        router.add_worker(worker)
    return router


def send(router: Sticky, key: str, *candidates: str) -> str:
    request = asked(key)
    worker = router.route(request, matches=NONE, candidates=candidates or None)
    router.dispatch(request, worker, extend_len=9)
    router.true_up(request, worker, extend_len=9, output_len=1)
    return worker


def test_a_key_keeps_its_worker_and_keys_are_spread():
    router = fleet()
    first = {key: send(router, key) for key in KEYS}

    assert all(send(router, key) == worker for key, worker in first.items())
    assert min(Counter(first.values()).values()) > len(KEYS) // 3 // 2


def test_every_process_and_the_next_life_assign_a_key_alike():
    """The order in which gateways add the workers does not matter."""
    one, two = fleet("u", "v", "w"), fleet("w", "u", "v")

    assert [send(one, key) for key in KEYS] == [send(two, key) for key in KEYS]


def test_a_worker_that_comes_takes_no_session_from_another():
    """Hashing alone would move a quarter of the conversations, and their caches with them."""
    router = fleet()
    first = {key: send(router, key) for key in KEYS}
    router.add_worker("x")

    assert all(send(router, key) == worker for key, worker in first.items())
    assert any(send(router, f"new-{number}") == "x" for number in range(100))


def test_the_keys_of_a_worker_that_is_gone_are_assigned_anew_and_no_others():
    router = fleet()
    first = {key: send(router, key) for key in KEYS}
    router.remove_worker("u")
    moved = {key: send(router, key) for key in KEYS}

    assert all(moved[key] == worker for key, worker in first.items() if worker != "u")
    assert {moved[key] for key, worker in first.items() if worker == "u"} == {"v", "w"}
    router.add_worker("u")  # another life, with nothing of theirs: they stay where they are now
    assert {key: send(router, key) for key in KEYS} == moved


def test_a_worker_that_takes_nothing_for_a_while_gets_its_keys_back():
    """After a retry or an open circuit the worker's cache still exists."""
    router = fleet()
    home = send(router, "k")
    others = [worker for worker in WORKERS if worker != home]

    assert send(router, "k", *others) in others
    assert send(router, "k") == home


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_found_again():
    router = fleet(max_keys=10)
    first = {key: send(router, key) for key in KEYS}

    assert router.remembered() == 10
    assert {key: send(router, key) for key in KEYS} == first


def test_without_a_key_the_least_loaded_is_chosen():
    router = fleet()
    sent = []
    for order in range(6):
        request = asked("", order)
        sent.append(router.route(request, matches=NONE))
        router.dispatch(request, sent[-1], extend_len=9)

    assert Counter(sent) == dict.fromkeys(WORKERS, 2)
    assert not router.remembered()

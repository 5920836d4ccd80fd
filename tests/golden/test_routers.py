"""Traces of routers that are small enough to check by hand: two workers, one line per request.

Every prompt has 100 tokens, and every request may emit 10 outputs. A worker that holds `cached` of the
prompt computes the others, so a request adds 100 - cached + 10 tokens to the load of its worker.
"""

from typing import NamedTuple

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.policy import Router
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.routers import make_router
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.in_flight_load import load_of

INPUT_LEN, MAX_TOKENS = 100, 10


class Row(NamedTuple):
    """A request, the worker that it must be sent to, and the tokens in flight afterwards."""

    client: str
    cached: dict[str, int]
    worker: str
    load: tuple[int, int]  # at u and v
    ends: int | None = None  # the request that ends before this one arrives, in full
    routing_key: str = ""
    candidates: str = "uv"


def replay(router: Router, rows: list[Row]) -> list[tuple[str, tuple[int, ...]]]:
    """Send the requests; return where each went and the loads afterwards."""
    load, sent, result = load_of(router), [], []
    for worker in "uv":
        router.add_worker(worker)
    for order, row in enumerate(rows):
        if row.ends is not None:
            request, worker, extend_len = sent[row.ends]
            router.true_up(request, worker, extend_len=extend_len, output_len=MAX_TOKENS)
        request = Request(
            id=str(order), client=row.client, prompt=(), input_len=INPUT_LEN, max_tokens=MAX_TOKENS,
            order=order, routing_key=row.routing_key,
        )  # fmt: skip
        matches = PrefixMatches.of_each(row.cached)
        worker = router.route(request, matches=matches, candidates=frozenset(row.candidates))
        sent.append((request, worker, INPUT_LEN - row.cached.get(worker, 0)))
        router.dispatch(request, worker, extend_len=sent[-1][2])
        result.append((worker, tuple(load.tokens(each) for each in "uv") if load else row.load))
    return result


def expected(rows: list[Row]) -> list[tuple[str, tuple[int, ...]]]:
    return [(row.worker, row.load) for row in rows]


def test_round_robin() -> None:
    rows = [
        Row("a", {}, "u", (0, 0)),
        Row("a", {"u": 80}, "v", (0, 0)),  # the cache does not count
        Row("b", {}, "u", (0, 0)),
        Row("b", {}, "u", (0, 0), candidates="u"),  # v does not serve the model
        Row("b", {}, "v", (0, 0)),  # v was used longest ago
    ]
    assert replay(make_router("round-robin"), rows) == expected(rows)


def test_least_loaded() -> None:
    rows = [
        Row("a", {}, "u", (110, 0)),  # a tie: u was added first
        Row("a", {"v": 80}, "v", (110, 30)),
        Row("a", {"v": 40}, "v", (110, 100)),
        Row("a", {}, "v", (110, 210)),  # 100 < 110
        Row("a", {"u": 80}, "u", (140, 210)),
        Row("b", {"u": 90}, "u", (50, 210), ends=0),  # 140 - 110 = 30, and 20 more
    ]
    assert replay(make_router("least-loaded"), rows) == expected(rows)


def test_power_of_two_choices_of_two_workers_is_the_less_loaded() -> None:
    """The seed is one for which u is drawn first in the only tie."""
    rows = [
        Row("a", {}, "u", (110, 0)),
        Row("a", {"v": 80}, "v", (110, 30)),
        Row("a", {}, "v", (110, 140)),
        Row("b", {"u": 80}, "u", (140, 140)),
    ]
    assert replay(make_router("power-of-two", seed=0), rows) == expected(rows)


def test_sticky() -> None:
    rows = [
        Row(
            "a", {}, "u", (110, 0), routing_key="k", candidates="u"
        ),  # v does not take requests now
        Row("a", {}, "u", (220, 0), routing_key="k"),  # the key stays, however loaded u is
        Row("a", {}, "v", (220, 110), routing_key="k", candidates="v"),  # u drains
        Row("b", {}, "u", (330, 110), routing_key="k"),  # u is back: the key was kept for it
        Row("b", {}, "v", (330, 220)),  # no key: the least loaded
    ]
    assert replay(make_router("sticky"), rows) == expected(rows)


def test_d2lpm() -> None:
    """
    Quantum 100 tokens, matches count from 10. On equal loads crc32("d"), even, begins at u; crc32("a"),
    odd, at v. An output costs 2: at its end a request is charged 20 more. The comments are q_{i,u}, q_{i,v}.
    """
    rows = [
        Row("d", {}, "u", (110, 0)),  # 0, 100
        Row(
            "d", {"u": 80}, "v", (110, 110)
        ),  # q of u is used up, so its match does not count: 0, 0
        Row(
            "d", {"u": 80, "v": 80}, "u", (140, 110)
        ),  # refill to 100, 100; a tie, u by the hash: 80, 100
        Row("a", {"u": 80}, "u", (170, 110)),  # the match counts more than the load: 80, 100
        Row("a", {"u": 5}, "v", (170, 220)),  # too short a match: the least loaded: 80, 0
        Row("a", {"v": 80}, "u", (250, 220), ends=3),  # v is used up; u: 80 - 20 - 100 = -40
        Row("a", {"v": 80}, "v", (250, 250)),  # refill to 60, 100; the match at v: 60, 80
    ]
    router = make_router("d2lpm", quantum=100, min_match=10)
    assert isinstance(router, D2LPM)

    assert replay(router, rows) == expected(rows)
    deficits = {(i, w): router.deficit(i, w) // UNITS_PER_TOKEN for i in "ad" for w in "uv"}
    assert deficits == {("a", "u"): 60, ("a", "v"): 80, ("d", "u"): 80, ("d", "v"): 100}

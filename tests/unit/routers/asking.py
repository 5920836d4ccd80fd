"""Fixtures of the routers' tests: requests, matches, a D2LPM router of two workers."""

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.policy import Router
from fairhit.core.request import Request
from fairhit.routers.d2lpm import D2LPM

QUANTUM = 100


def choose(router: Router, request: Request, matched: dict[str, int]) -> str:
    """Route `request` among the workers in `matched`, which hold that many of its tokens."""
    return router.route(request, matches=PrefixMatches.of_each(matched), candidates=matched.keys())


def request(
    client: str, order: int, *, input_len: int = 100, max_tokens: int = 500, prompt: str = ""
) -> Request:
    return Request(
        id=str(order),
        client=client,
        prompt=tuple(prompt),
        input_len=input_len,
        max_tokens=max_tokens,
        order=order,
    )


def d2lpm(**settings: object) -> D2LPM:
    router = D2LPM(**{"quantum": QUANTUM, "min_match": 10, **settings})  # type: ignore[arg-type]
    for worker in ("w0", "w1"):
        router.add_worker(worker)
    return router

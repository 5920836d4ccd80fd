"""A flood on a real SGLang beside a tenant with few requests; `benchmarks.one_engine` measures a longer one.

The flood's callers share a prefix of some 1,350 tokens and ask again as soon as they are answered; the other
tenant asks for one completion after the other, each with a prompt of its own. Nobody goes by a clock: the
other one begins when so many of the flood wait in the engine, and the flood ends when it has been answered.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from tests.sglang.server import Answer, Server, until

T = TypeVar("T")

CALLERS, TURNS = 96, 4
SEATS = 8  # of them, at most, run or are between two requests when the other begins
# Requests of a flood after which it ends, for each of its callers: where nobody else is ever served.
MOST = 8
MAX_TOKENS = 16
WAITING = "fairhit_waiting_requests"


class Flooded(NamedTuple):
    """Return each tenant's answers, and how many of the flood's ended during each of the other tenant's."""

    many: list[Answer]
    few: list[Answer]
    passed: list[int]


def words(rng: random.Random, count: int) -> str:
    """Text of so many words, four or five tokens each."""
    return " ".join(f"word{rng.randrange(300)}" for _ in range(count))


def flood(
    server: Server, *, callers: int = CALLERS, waiting: int = CALLERS - SEATS, turns: int = TURNS
) -> Flooded:
    """The other tenant's turns begin once `waiting` of the flood's requests wait in the engine."""
    rng = random.Random(1)
    shared = words(rng, 300)
    few, passed = [], []

    def ask(number: int) -> Answer:
        return server.complete(f"{shared} {number}", client="many", max_tokens=MAX_TOKENS)

    with crowd(ask, callers=callers, most=MOST * callers) as many:
        until(lambda: many and server.counters(WAITING).get("many", 0) >= waiting)
        for turn in range(turns):
            before = len(many)
            prompt = f"{turn} {words(rng, 50)}"
            few.append(server.complete(prompt, client="few", max_tokens=MAX_TOKENS))
            passed.append(len(many) - before)
    return Flooded(many, few, passed)


@contextlib.contextmanager
def crowd(ask: Callable[[int], T], *, callers: int, most: int) -> Iterator[list[T]]:
    """Callers who ask again as soon as they are answered, for as long as the `with` lasts.

    What they got is in the order in which it came. Each has asked at least once; `most` is for all of them.
    """
    answers: list[T] = []
    numbers, is_over = iter(range(most)), threading.Event()

    def call(first: int | None) -> None:
        number = first
        while number is not None:
            answers.append(ask(number))
            number = None if is_over.is_set() else next(numbers, None)

    threads = [threading.Thread(target=call, args=(next(numbers),)) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join()

"""One tenant floods a real SGLang, another asks now and then; `benchmarks.one_engine` measures a longer one.

The flood is 48 requests at once that share a prefix of some 1,350 tokens; the other tenant asks for one
completion after the other, each with a prompt of its own.
"""

import random
import threading
import time
from typing import NamedTuple

from tests.sglang.server import Answer, Server

FLOOD, TURNS = 48, 6
MAX_TOKENS = 16


class Flooded(NamedTuple):
    """Each tenant's answers."""

    many: list[Answer]
    few: list[Answer]


def words(rng: random.Random, count: int) -> str:
    """Text of so many words, four or five tokens each."""
    return " ".join(f"word{rng.randrange(300)}" for _ in range(count))


def flood(server: Server, *, requests: int = FLOOD, turns: int = TURNS) -> Flooded:
    """The flood, and 0.5 s later the first of the other tenant's turns."""
    rng = random.Random(1)
    shared = words(rng, 300)
    done = Flooded([], [])

    def ask(number: int) -> None:
        prompt = f"{shared} {number}"
        done.many.append(server.complete(prompt, client="many", max_tokens=MAX_TOKENS))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(requests)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    for turn in range(turns):
        prompt = f"{turn} {words(rng, 150)}"
        done.few.append(server.complete(prompt, client="few", max_tokens=MAX_TOKENS))
    for thread in threads:
        thread.join()
    return done

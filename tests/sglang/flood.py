"""One tenant floods a real SGLang, another asks now and then: under each policy, side by side.

    .venvs/sglang/bin/python -m tests.sglang.flood [fcfs lpm dlpm]

The flood is 48 requests at once that share a prefix of some 1,350 tokens; the other tenant asks for one
completion after the other, each with a prompt of its own. Seconds depend on the machine and on what else
runs there; what to look at is how the tenants' seconds compare, and the cached tokens.
"""

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.sglang.server import Answer, Server, running

FLOOD, TURNS = 48, 6
MAX_TOKENS = 16
QUANTUM = 500  # tokens of service; the flood takes about 80 for each request


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


def main(policies: list[str]) -> None:
    """Print a row for each policy."""
    show("policy", "flood s", "other s", "worst s", "in all s", "cached")
    for policy in policies:
        environment = {"FAIRLEAD_QUANTUM": str(QUANTUM)}
        with (
            tempfile.TemporaryDirectory() as folder,
            running(Path(folder), policy, environment=environment) as server,
        ):
            for _ in range(2):  # twice, to see how much is chance
                server.forget()
                started_s = time.monotonic()
                many, few = flood(server)
                took_s = max(answer.ended_s for answer in [*many, *few]) - started_s
                worst_s = max(answer.seconds for answer in few)
                cached = sum(answer.cached for answer in [*many, *few])
                seconds = (mean(many), mean(few), worst_s, took_s)
                show(policy, *(f"{each:.2f}" for each in seconds), str(cached))


def show(*cells: str) -> None:
    """A row of the table."""
    sys.stdout.write("  ".join(f"{cell:>8}" for cell in cells) + "\n")
    sys.stdout.flush()


def mean(answers: list[Answer]) -> float:
    """Seconds from asking to the whole answer."""
    return sum(answer.seconds for answer in answers) / len(answers)


if __name__ == "__main__":
    main(sys.argv[1:] or ["fcfs", "lpm", "dlpm"])

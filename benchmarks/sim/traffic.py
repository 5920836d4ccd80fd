"""Traffic for the simulator's benches: prompts of 1,000 tokens in four runs, three quarters of them shared.

Rows are made as they are read, so that measured memory is the simulator's alone.
"""

from collections.abc import Iterator
from random import Random
from sys import intern

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.traces.trace import TraceRow

# Tokens of each run; the shared one is below D2LPM's minimum match, or all would go to one worker first.
SYSTEM, CLIENT, DOCUMENT, OWN = 50, 450, 300, 200
DOCUMENTS = 8  # of each client
MEAN_OUTPUT = 100


def steady(count: int, *, rate: float, clients: int, seed: int) -> Iterator[TraceRow]:
    """Yield Poisson arrivals, `rate` a second, of clients that are all alike."""
    rng = Random(seed)
    at = 0.0
    for number in range(count):
        at += rng.expovariate(rate)
        yield _row(number, rng, clients, int(at * 1e6))


def burst(count: int, *, clients: int, seed: int) -> Iterator[TraceRow]:
    """Yield requests that all arrive at time 0."""
    rng = Random(seed)
    for number in range(count):
        yield _row(number, rng, clients, 0)


def _row(number: int, rng: Random, clients: int, at_us: int) -> TraceRow:
    # One object for each name, as in a trace that is read from a file.
    client = intern(f"client {rng.randrange(clients)}")
    document = intern(f"{client} document {rng.randrange(DOCUMENTS)}")
    output_len = rng.randrange(1, 2 * MEAN_OUTPUT)
    return TraceRow(
        id=str(number),
        client=client,
        arrival_us=at_us,
        prompt=Runs(
            [
                ("system", 0, SYSTEM),
                (client, 0, CLIENT),
                (document, 0, DOCUMENT),
                (number, 0, OWN),
            ]
        ),
        output_len=output_len,
        max_tokens=output_len,
    )

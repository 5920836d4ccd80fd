"""Many clients with many prefixes, without end if need be: for benches, nothing is held but the shares."""

from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from random import Random

from fairhit_lab.traces import arrivals
from fairhit_lab.traces.parameters import Amount, Count, Positive
from fairhit_lab.traces.rows import row
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.workload import preset


def fleet(
    rng: Random,
    *,
    clients: Count = 1000,
    requests: Count = 100_000,
    rate: Positive = 100,
    skew: Amount = 1,
    prefixes: Count = 64,
    documents: Count = 8,
    input_len: Count = 1000,
    output_len: Count = 128,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Clients' rates fall as 1/rank^skew; a prompt: a common prefix, a document of the client's, a rest.

    A quarter of `input_len` is the prefix, half the document; the rest is uniform with mean a
    quarter, outputs are uniform with mean `output_len`. O(log clients) a row, O(clients) in all.
    """
    shares = list(accumulate((rank + 1) ** -skew for rank in range(clients)))
    head, body = max(1, input_len // 4), max(1, input_len // 2)
    most = max(1, 2 * (input_len - head - body) - 1)
    times = arrivals.gamma(rng, per_s=rate, cv=cv)
    for n, at_s in zip(range(requests), times, strict=False):
        number = min(bisect(shares, rng.random() * shares[-1]), clients - 1)
        yield row(
            f"r{n}",
            client=f"c{number}",
            at_s=at_s,
            prompt=[
                (f"prefix{number % prefixes}", head),
                (f"c{number}:d{rng.randrange(documents)}", body),
                (f"r{n}", rng.randint(1, most)),
            ],
            output_len=rng.randint(1, 2 * output_len - 1),
        )


FLEET = {
    "fleet": preset(fleet, "many clients of unequal rates, many prefixes; for benches", "bench")
}

"""A fixed traffic through a fixed cluster, as one number; the standard library and fairlead are enough."""

import hashlib
from random import Random

from fairlead.core.events import Decode
from fairlead.core.runs import Runs
from fairlead.sim.cluster import Cluster
from fairlead.sim.config import Change, SimConfig
from fairlead.workloads.trace import TraceRow

SECOND = 10**6


def traffic(seed, count=150):
    """Bursts of clients with shared prefixes, conversations and callers that leave."""
    rng = Random(seed)
    at_us = 0
    for number in range(count):
        at_us += rng.randrange(0, SECOND // 2)
        client = f"client {rng.randrange(6)}"
        output_len = rng.randrange(1, 30)
        yield TraceRow(
            id=f"r{number}",
            client=client,
            arrival_us=at_us,
            prompt=Runs([("system", 0, 20), (client, 0, rng.randrange(1, 40)), (number, 0, 5)]),
            output_len=output_len,
            max_tokens=output_len + rng.randrange(5),
            output=Runs([(f"out {number}", 0, output_len)]) if rng.random() < 0.5 else None,
            after=(f"r{number - 1}",) if number and rng.random() < 0.2 else (),
            weight={"client 1": 2 * 10**6}.get(client),
            cancel_us=at_us + rng.randrange(20 * SECOND) if rng.random() < 0.1 else None,
        )


def digest(scheduler="dlpm", router="d2lpm", seed=0, **settings):
    """Of everything that happens, as text."""
    config = SimConfig(
        scheduler=scheduler,
        router=router,
        replicas=3,
        kv_tokens=400,
        step_time="linear:0.1,0.001,0.01",
        jitter=0.05,
        changes=(Change(time_us=10 * SECOND, worker=1, up=False),),
        seed=seed,
        **settings,
    )
    sha = hashlib.sha256()

    def hear(event):
        if isinstance(event, Decode):
            event = event._replace(counts=sorted(event.counts.items()))
        sha.update(repr(event).encode())

    Cluster(config, traffic(seed), [hear]).run()
    return sha.hexdigest()

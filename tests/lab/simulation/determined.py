"""A fixed traffic through a fixed cluster, as one number; the standard library and fairhit are enough."""

import hashlib
import io
from random import Random

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.baselines import ALL_ROUTERS, ALL_SCHEDULERS, CENTRAL_ROUTERS
from fairhit_lab.metrics.events_file import EventsWriter
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange
from fairhit_lab.sim.engines.profiles import HOSTS
from fairhit_lab.traces.trace import TraceRow

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


class Sha(io.RawIOBase):
    """A file of which only the digest is kept."""

    def __init__(self):
        self.sha = hashlib.sha256()

    def write(self, data):
        self.sha.update(data)
        return len(data)


def scheduler_with(router):
    """dlpm, but for a router that is the scheduler itself."""
    return router.removeprefix("central-") if router in CENTRAL_ROUTERS else "dlpm"


def digest(scheduler="dlpm", router="d2lpm", seed=0, *, count=150, **settings):
    """Of the file of events, its bytes."""
    given = {
        "replicas": 3,
        "kv_tokens": 400,
        "step_time": "linear:0.1,0.001,0.01",
        "jitter": 0.05,
        "changes": (WorkerChange(time_us=10 * SECOND, worker=1, up=False),),
    }
    config = SimConfig(scheduler=scheduler, router=router, seed=seed, **(given | settings))
    file = Sha()
    Cluster(config, traffic(seed, count), [EventsWriter(file)]).run()
    return file.sha.hexdigest()


def digests():
    """Of every scheduler behind every router, and of one alone on each other host, by their names."""
    pairs = [(scheduler, router) for scheduler in ALL_SCHEDULERS for router in ALL_ROUTERS]
    pairs += [(scheduler_with(router), router) for router in CENTRAL_ROUTERS]
    given = {"count": 50, "replicas": 2, "kv_tokens": 110, "quantum": None}
    of = {}
    for scheduler, router in pairs:
        own = {"quantum": 30} if scheduler in {"dlpm", "drr"} or router in CENTRAL_ROUTERS else {}
        of[scheduler, router] = digest(scheduler, router, **(given | own))
    for host in HOSTS:
        of["vtc", host] = digest("vtc", host=host, **given)
    return of

"""What a simulation keeps: nothing of a request that has ended."""

import gc

import pytest
from tests.lab.simulation.traces import CAPACITY, SECOND, row

from fairhit_lab.baselines import CENTRAL_ROUTERS
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange


@pytest.mark.parametrize("router", ["d2lpm", "central-dlpm"])
def test_a_request_that_has_ended_is_in_no_cycle(router):
    """
    A simulation runs without the garbage collector: a cycle for each request would fill the memory.
    """
    rows = [row(f"{name}{at}", at=at, output_len=3) for at in range(9) for name in "ab"]
    rows[6] = row("leaves", at=3, output_len=30, cancel_us=5 * SECOND)
    changes = (WorkerChange(time_us=4 * SECOND, worker=1, up=False),)
    config = SimConfig(
        replicas=2, router=router, changes=changes, step_time="linear:1,0,0", kv_tokens=CAPACITY
    )
    cluster = Cluster(config, rows, [Summary(one_queue=2 * (router in CENTRAL_ROUTERS))])
    gc.collect()
    gc.disable()
    try:
        cluster.run()
        left = list(cluster.intake.alive())
        found = gc.collect()
    finally:
        gc.enable()

    assert not left
    assert found == 0

"""Outputs are charged when a decision depends on them, which decides as if each were charged at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.simulation.determined import scheduler_with
from tests.lab.simulation.host_runs import PHASES
from tests.lab.simulation.traces import simulate, traces

from fairhit.core.fair_queue import FairQueue
from fairhit_lab.baselines import CENTRAL_ROUTERS

tick = FairQueue.tick


def tick_and_charge(scheduler, passes):
    """As the definition has it: every pass is charged as it ends."""
    for _ in range(passes):
        tick(scheduler, 1)
        scheduler.sync_charges()


def eagerly(rows, **given):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FairQueue, "tick", tick_and_charge)
        return simulate(rows, **given)


@pytest.mark.parametrize(
    "scheduler",
    [
        "lcf",
        "vtc",
        "vtc-predict",
        "vtc-noisy",
        "drr",
        "dlpm",
        "dlpm-predict",
        "central-dlpm",
        "central-fair",
    ],
)
@settings(max_examples=60, deadline=None, phases=PHASES)
@given(
    rows=traces(clients="abc", min_size=10, max_s=4),
    step_time=st.sampled_from(["linear:1,0,0", "linear:0.3,0.01,0.1"]),
    kv_tokens=st.sampled_from([48, 64, 100]),
    max_running=st.sampled_from([1, 4, 256]),
    replicas=st.sampled_from([1, 2]),
    host=st.sampled_from(["ideal", "ideal", "artifact"]),
    quantum=st.sampled_from([1, 5, 30, 4096]),
    max_overtake=st.sampled_from([None, 0, 10]),
    weights=st.sampled_from([{}, {"a": "0.5", "b": 3}]),
)
def test_lazily_as_eagerly(scheduler, rows, quantum, max_overtake, **given):
    """Every event, weights, ageing and any quantum included."""
    if scheduler in CENTRAL_ROUTERS:
        given |= {"router": scheduler, "scheduler": scheduler_with(scheduler), "quantum": quantum}
    else:
        given |= {"scheduler": scheduler, "router": "least-loaded"}
        given |= {"quantum": quantum} if scheduler in {"dlpm", "drr"} else {}
        given |= {"max_overtake": max_overtake} if scheduler == "dlpm" else {}

    assert simulate(rows, **given) == eagerly(rows, **given)

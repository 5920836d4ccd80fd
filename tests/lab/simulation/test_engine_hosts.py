"""The engines' own profiles inside a whole simulation: routers, failures, skipping, what is refused."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.lab.simulation.traces import SECOND, of, one_by_one, row, simulate, traces

from fairhit.errors import ConfigError
from fairhit_lab.baselines import ALL_SCHEDULERS
from fairhit_lab.events import Admit, Preempt
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig, WorkerChange

some = settings(
    max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
HOSTS = ("vllm", "sglang")
# Three requests of the traces outgrow that; in blocks of 16 it is 7.
MEMORY = 112


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("scheduler", ALL_SCHEDULERS)
@some
@given(
    rows=traces(),
    step_time=st.sampled_from(["linear:1,0,0", "a10g:llama-3.2-3b"]),
    max_running=st.sampled_from([2, 64]),
    batch_tokens=st.sampled_from([8, 64, None]),
    replicas=st.sampled_from([1, 3]),
)
def test_skipping_tells_what_stepping_tells(host, scheduler, rows, **given):
    given |= {"host": host, "scheduler": scheduler, "kv_tokens": MEMORY, "router": "d2lpm"}

    skipped = simulate(rows, **given)
    stepped = simulate(rows, skips=False, **given)

    assert one_by_one(skipped) == one_by_one(stepped)


@pytest.mark.parametrize("host", HOSTS)
@some
@given(rows=traces(), fails=st.integers(0, 80), joins=st.integers(1, 40))
def test_a_worker_may_fail_and_come_back(host, rows, fails, joins):
    changes = (
        WorkerChange(time_us=fails * SECOND // 4, worker=0, up=False),
        WorkerChange(time_us=(fails + joins) * SECOND // 4, worker=0, up=True),
    )
    given = {"replicas": 2, "changes": changes, "host": host, "kv_tokens": MEMORY}

    assert one_by_one(simulate(rows, **given)) == one_by_one(simulate(rows, skips=False, **given))


@pytest.mark.parametrize("host", HOSTS)
def test_who_is_preempted_is_admitted_again_and_said_so(host):
    """Both fit when they are admitted, and not with all that they emit."""
    rows = [row("a", prompt="x60", output_len=40), row("b", at=1.5, prompt="y20", output_len=40)]
    events = simulate(rows, host=host, kv_tokens=155)

    preempted = [event.request for event in of(Preempt, events)]
    assert preempted
    assert sorted(e.request for e in of(Admit, events) if e.again) == sorted(preempted)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "given", [{"admission": "reserve"}, {"misfit": "skip"}, {"inbatch": "compute"}]
)
def test_what_an_engine_does_not_do_is_refused(host, given):
    with pytest.raises(ConfigError, match=f"host {host}"):
        Cluster(SimConfig(host=host, kv_tokens=MEMORY, **given), [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kv_tokens": 15}, "a block of 16"),
        ({"router": "central-dlpm", "replicas": 2}, "by blocks"),
    ],
)
def test_what_blocks_cannot_do_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        Cluster(SimConfig(**{"host": "vllm", "kv_tokens": MEMORY, **given}), [])

"""Engine time by client: what each pass is divided into."""

import pytest

from fairhit.core.service import Weights
from fairhit_lab.metrics.engine_seconds import EngineSeconds
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.hardware.step_time import parse_step_time
from fairhit_lab.traces.rows import row

GPU = "a10g:llama-3.2-3b"


def spent(rows, **settings):
    """Engine seconds by client, and the makespan, of an engine that is busy from 0 on."""
    config = SimConfig(step_time=GPU, **settings)
    model = parse_step_time(GPU)
    seconds = EngineSeconds(context_ps=model.context_ps, attention_ps=model.attention_ps)
    cluster = Cluster(config, iter(rows), [seconds], weights=Weights({}))
    cluster.run()
    return seconds.seconds(), cluster.now_us / 1e6


def request(name, client, own, *, prefix=0, outputs=50):
    shared = [(f"{client}:p", prefix)] if prefix else []
    return row(name, client=client, at_s=0.0, prompt=[*shared, (name, own)], output_len=outputs)


@pytest.mark.parametrize("skips", [True, False])
def test_the_parts_add_up_to_the_time_that_the_engine_was_busy(skips):
    rows = [request("1", "a", 200), request("2", "b", 3000), request("3", "b", 10, prefix=5000)]

    seconds, end_s = spent(rows, skips=skips)

    assert sum(seconds.values()) == pytest.approx(end_s, rel=1e-6)


def test_passes_in_closed_form_are_divided_as_the_passes_one_by_one():
    rows = [request("1", "a", 200, outputs=400), request("2", "b", 3000, outputs=90)]

    together, _ = spent(rows, skips=True)
    one_by_one, _ = spent(rows, skips=False)

    for client in "ab":
        assert together[client] == pytest.approx(one_by_one[client], rel=1e-9)


def test_like_clients_have_like_parts_and_a_long_context_costs_its_reading():
    like, _ = spent([request("1", "a", 200), request("2", "b", 200)])
    unlike, _ = spent([request("1", "a", 200), request("2", "b", 200, prefix=30_000)])
    short, _ = spent([request("1", "a", 200)])

    assert like["a"] == pytest.approx(like["b"], rel=1e-6)
    assert unlike["b"] > 3 * unlike["a"]
    assert unlike["a"] < short["a"]  # the weights are read for both

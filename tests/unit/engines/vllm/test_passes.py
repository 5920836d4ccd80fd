"""What is measured of a pass on a bare vLLM Scheduler: its work by client, and its duration."""

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import make_request  # noqa: E402
from tests.unit.engines.vllm.fair_trace import fair  # noqa: E402

from fairhit.core.costs import ENGINE  # noqa: E402
from fairhit.core.engine_time import PassWork  # noqa: E402
from fairhit.engines.pass_meter import PassMeter  # noqa: E402
from fairhit.engines.vllm.passes import StepTimes, works_of  # noqa: E402


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def step(trace) -> dict[str, PassWork]:
    """Plan and finish a step; the work that its plan had."""
    seen: list[dict[str, PassWork]] = []
    trace.scheduler._passes.planned = lambda _, works: seen.append(works)
    trace.step()
    return seen[0]


def test_chunks_count_behind_what_is_cached_or_was_computed_and_decodes_behind_all_before():
    trace = fair(budget=64)
    trace.add(make_request("first", [1] * 100, client="a", max_tokens=3))

    assert step(trace) == {"a": PassWork(extend=64, attention=64 * 63 // 2)}
    assert step(trace) == {"a": PassWork(extend=36, attention=36 * 64 + 36 * 35 // 2)}
    trace.add(make_request("second", [1] * 100, client="b", max_tokens=1))
    assert step(trace) == {
        "a": PassWork(decodes=1, context=100),
        "b": PassWork(extend=4, attention=4 * 96 + 6),
    }
    assert step(trace) == {"a": PassWork(decodes=1, context=101)}


def test_under_async_scheduling_a_pass_begins_when_the_one_before_ended():
    clock, seconds = Clock(), []
    times = StepTimes(PassMeter(None), lambda *part: seconds.append(part), clock)
    plans = [object(), object()]
    times.planned(plans[0], {"a": PassWork(decodes=1, context=5)})
    clock.now_s = 1.0
    times.planned(plans[1], {"b": PassWork(decodes=1, context=5)})
    for plan, clock.now_s in zip(plans, (2.0, 2.5), strict=True):
        times.ended(plan)

    assert seconds == [("a", 2.0), ("b", 0.5)]


def test_a_pass_without_an_output_is_dropped_and_an_empty_plan_is_none():
    clock, seconds = Clock(), []
    times = StepTimes(PassMeter(None), lambda *part: seconds.append(part), clock)
    lost, empty, plan = object(), object(), object()
    times.planned(lost, {"a": PassWork(decodes=1, context=5)})
    times.planned(empty, works_of({}, {}, {}))
    clock.now_s = 4.0
    times.ended(empty)
    times.planned(plan, {"b": PassWork(decodes=1, context=5)})
    clock.now_s = 5.0
    times.ended(plan)

    assert seconds == [("b", 1.0)]


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("scheduler", ["fair", "dlpm", "fcfs"])
def test_every_policy_divides_the_time_and_a_fitted_cost_follows_it(scheduler, run_ahead):
    """The clock of the test gives a pass its duration: half a unit for each token before an output."""
    trace = fair(scheduler=scheduler, run_ahead=run_ahead, max_num_seqs=4)
    passes, parts, spent = trace.scheduler._passes, [], []
    passes._on_seconds = lambda _, part: parts.append(part)
    observe = passes._meter.observe

    def timed(works, _):
        tokens = sum(work.extend + 4 * work.decodes for work in works.values())
        spent.append(tokens + sum(work.context for work in works.values()) / 2)
        return observe(works, spent[-1])

    passes._meter.observe = timed
    for i in range(160):
        words = [i % 2] * (472 if i % 2 else 12) + [i + 100] * 8
        trace.add(make_request(f"r{i}", words, client="ab"[i % 2], max_tokens=12))
    trace.run()

    assert sum(parts) == pytest.approx(sum(spent))
    fit = trace.scheduler._fair.fit
    assert (fit is not None) == (scheduler == "fair")
    if fit is not None:
        assert fit.ready and trace.scheduler._fair.cost.context >= 2 * ENGINE.context

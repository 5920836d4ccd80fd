"""What is measured of a pass, by SGLang's own names for what is in it."""

from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from fairhit.core.engine_time import PassWork
from fairhit.engines.pass_meter import PassMeter
from fairhit.engines.sglang.passes import PassTimes, works_of
from fairhit.engines.sglang.scheduler import measures_passes


def req(client: str, prompt: int = 0, outputs: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        client=client, origin_input_ids=[0] * prompt, output_ids=[0] * outputs
    )  # fmt: skip


def batch(mode: ForwardMode, *reqs: Any, **more: Any) -> SimpleNamespace:
    about = {"decoding_reqs": None, "device": "cuda", **more}
    return SimpleNamespace(forward_mode=mode, reqs=list(reqs), **about)


def works(of: SimpleNamespace) -> dict[str, PassWork]:
    return works_of(of, lambda req: req.client)


def test_of_a_prefill_the_computed_chunks_count_behind_what_is_cached_or_was_computed():
    of = batch(
        ForwardMode.EXTEND, req("a"), req("b"), req("a"), extend_lens=[10, 3, 1], prefix_lens=[0, 100, 7]
    )  # fmt: skip

    assert works(of) == {
        "a": PassWork(extend=11, attention=45 + 7),
        "b": PassWork(extend=3, attention=300 + 3),
    }


def test_of_a_decode_each_token_counts_behind_all_before_it():
    """Of the third request the last of its two outputs is the token that is computed."""
    of = batch(ForwardMode.DECODE, req("a", 10, 1), req("b", 5, 1), req("a", 20, 2))

    assert works(of) == {
        "a": PassWork(decodes=2, context=10 + 21),
        "b": PassWork(decodes=1, context=5),
    }


def test_of_a_mixed_batch_the_last_requests_decode():
    decoding = [req("a", 30, 2)]
    of = batch(ForwardMode.MIXED, req("b"), *decoding, extend_lens=[4, 1], prefix_lens=[0, 31])
    of.decoding_reqs = decoding

    assert works(of) == {"b": PassWork(extend=4, attention=6), "a": PassWork(decodes=1, context=31)}


def test_a_step_of_speculation_counts_as_a_decode_and_lengths_of_an_old_prefill_do_not():
    of = batch(ForwardMode.TARGET_VERIFY, req("a", 10, 3), extend_lens=[9, 9], prefix_lens=[0, 0])

    assert works(of) == {"a": PassWork(decodes=1, context=12)}


def test_a_result_that_was_replaced_is_no_measurement(timed):
    times, _, seconds = timed
    times.launched(batch(ForwardMode.DECODE, req("a", 5, 1)), GenerationBatchResult)

    times.ended(GenerationBatchResult())

    assert not seconds


def test_an_idle_batch_has_no_work():
    assert works(batch(ForwardMode.IDLE)) == {}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def timed() -> tuple[PassTimes, Clock, list[tuple[str, float]]]:
    clock, seconds = Clock(), []  # type: ignore[var-annotated]
    times = PassTimes(
        PassMeter(None), lambda req: req.client, lambda *part: seconds.append(part), clock
    )
    return times, clock, seconds


def test_without_overlap_a_pass_lasts_from_its_launch_to_its_result(timed):
    times, clock, seconds = timed
    for start_s, end_s in ((1.0, 1.5), (2.0, 2.25)):
        clock.now_s = start_s
        result = times.launched(batch(ForwardMode.DECODE, req("a", 5, 1)), GenerationBatchResult)
        clock.now_s = end_s
        times.ended(result)

    assert seconds == [("a", 0.5), ("a", 0.25)]


def test_under_overlap_a_pass_begins_when_the_one_before_it_ends(timed):
    """Both are launched before the first result: their times add up to what has passed."""
    times, clock, seconds = timed
    results = []
    for start_s, client in ((1.0, "a"), (1.1, "b")):
        clock.now_s = start_s
        results.append(
            times.launched(batch(ForwardMode.DECODE, req(client, 5, 1)), GenerationBatchResult)
        )
    for end_s, result in zip((2.0, 2.5), results, strict=True):
        clock.now_s = end_s
        times.ended(result)

    assert seconds == [("a", 1.0), ("b", 0.5)]


def test_on_a_cpu_a_pass_ends_when_its_launch_returns_though_its_result_is_read_after_the_next_launch(
    timed,
):
    times, clock, seconds = timed
    results = []
    for end_s, client in ((1.0, "a"), (1.25, "b")):

        def compute(end_s=end_s):
            clock.now_s = end_s
            return GenerationBatchResult()

        of = batch(ForwardMode.DECODE, req(client, 5, 1), device="cpu")
        results.append(times.launched(of, compute))
    for result in results:
        clock.now_s += 3.0
        times.ended(result)

    assert seconds == [("a", 1.0), ("b", 0.25)]


@pytest.mark.parametrize(
    ("pp_size", "enable_pdmux", "is_measured"),
    [(1, False, True), (2, False, False), (1, True, False)],
)
def test_what_is_no_whole_pass_is_not_measured(pp_size, enable_pdmux, is_measured):
    server_args = SimpleNamespace(enable_pdmux=enable_pdmux)

    assert measures_passes(server_args, SimpleNamespace(pp_size=pp_size)) == is_measured

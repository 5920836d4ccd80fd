"""The VTC artifact's engine: when it admits, what fits, and how late it is notified."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.simulation.traces import of, row, simulate

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.errors import ConfigError
from fairhit.policies import make_policy
from fairhit_lab.events import Admit, Decode, Finish, FirstToken, Reject
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.engines.vtc_artifact import (
    ADAPTER_TOKENS,
    WAIT_PASSES,
    ArtifactHost,
    WorstCase,
)

POOL = 10_000


def job(name, order, *, prompt=100, output_len=20, client="a"):
    made = row(name, client=client, prompt=f"{name}{prompt}", output_len=output_len)
    return EngineJob(made, request_of(made, order))


def request_of(made, order):
    return Request(
        id=made.id, client=made.client, prompt=made.prompt, input_len=len(made.prompt),
        max_tokens=made.max_tokens, order=order,
    )  # fmt: skip


def host_with(*, pool=POOL, scheduler="fcfs", **settings):
    policy = make_policy(scheduler, cache=RadixTree())
    return ArtifactHost(scheduler=FairQueue(policy), pool=pool, **settings)


def passes(host, count, arrivals=None):
    """`count` passes, each as a word: P and who it prefills, or D and how many decode."""
    words = []
    for number in range(count):
        work = host.begin_pass(0)
        if work is None:
            words.append("-")
        elif work.chunks:
            words.append("P" + "".join(each.job.request.id for each in work.admitted))
        else:
            words.append(f"D{work.decodes}")
        for late in (arrivals or {}).get(number, []):
            host.enqueue(late)  # while the pass computes
        if work is not None:
            host.end_pass(1, 0)
            host.check()
    return words


def test_the_next_minibatch_comes_ten_decode_passes_after_the_last():
    host = host_with()
    host.enqueue(job("a", 0, output_len=100))

    words = passes(host, 14, {0: [job("b", 1, output_len=100)]})

    assert words == ["Pa", *["D1"] * WAIT_PASSES, "Pb", "D2", "D2"]


def test_an_idle_engine_prefills_at_once():
    host = host_with()
    host.enqueue(job("a", 0, output_len=3))

    words = passes(host, 6, {3: [job("b", 1, output_len=1)]})

    assert words == ["Pa", "D1", "D1", "-", "Pb", "-"]


def test_a_request_that_arrives_during_a_pass_is_not_seen_by_the_next_admission():
    """
    The message lies in the socket while the thread computes, and is read behind the next start.
    """
    host = host_with()
    host.enqueue(job("a", 0, output_len=100))
    last = WAIT_PASSES  # the pass that ends as an admission is due

    words = passes(host, last + 4, {last: [job("b", 1, output_len=100)]})

    assert words[last:] == ["D1", "D1", "Pb", "D2"]


def test_once_due_an_admission_is_tried_before_every_pass_until_one_succeeds():
    """b needs a's memory, which is free after a's 25th output: the pass behind that admits it."""
    host = host_with(pool=300)
    host.enqueue(job("a", 0, prompt=100, output_len=25))
    host.enqueue(job("b", 1, prompt=150, output_len=100))

    words = passes(host, 27)

    assert words == ["Pa", *["D1"] * 24, "Pb", "D1"]


def test_while_prompts_are_prefilled_the_others_wait():
    host = host_with()
    host.enqueue(job("a", 0, output_len=100))
    passes(host, 2)
    host.enqueue(job("b", 1))
    passes(host, WAIT_PASSES - 1)

    work = host.begin_pass(0)

    assert (work.chunks, work.decodes, work.context, dict(work.counts)) == (1, 0, 0, {"a": 1})
    assert [each.request.id for each in work.first] == ["b"]


def test_a_minibatch_has_at_most_its_budget_of_prompt_tokens():
    host = host_with()
    for order, name in enumerate("abcd"):
        host.enqueue(job(name, order, prompt=1000, output_len=100))

    words = passes(host, WAIT_PASSES + 2)

    assert (words[0], words[-1]) == ("Pabc", "Pd")


def test_the_budget_is_a_sixth_of_a_large_pool():
    host = host_with(pool=60_000)
    for order, name in enumerate("abcdefghijkl"):
        host.enqueue(job(name, order, prompt=1000, output_len=100))

    assert passes(host, 1) == ["Pabcdefghij"]


def test_who_does_not_fit_holds_up_those_behind():
    host = host_with(pool=1000)
    host.enqueue(job("a", 0, prompt=500, output_len=100))
    host.enqueue(job("b", 1, prompt=500, output_len=100))
    host.enqueue(job("c", 2, prompt=10, output_len=2))

    assert passes(host, 1) == ["Pa"]


def test_no_more_than_the_limit_run():
    host = host_with(max_running=2)
    for order, name in enumerate("abc"):
        host.enqueue(job(name, order, prompt=10, output_len=3))

    assert passes(host, 5) == ["Pab", "D2", "D2", "Pc", "D1"]


def test_who_leaves_frees_its_memory_from_whatever_state():
    host = host_with(pool=1000)
    jobs = [job(name, order, prompt=500, output_len=100) for order, name in enumerate("abc")]
    for each in jobs[:2]:
        host.enqueue(each)
    passes(host, 3)
    host.enqueue(jobs[2])
    host.cancel(jobs[2])  # not reported yet
    host.cancel(jobs[1])  # waiting
    host.cancel(jobs[0])  # running
    host.check()

    assert (jobs[0].emitted, jobs[2].emitted) == (3, 0)
    assert passes(host, 1) == ["-"]


def peak(running, candidates, step):
    """The artifact's test, written out: what memory must hold at the worst moment to come."""
    entries = [(max_len - out - 1, tokens + out) for tokens, max_len, out in running]
    entries += [(max_len - 1, tokens + 1) for tokens, max_len in candidates]
    entries.sort(key=lambda entry: -entry[0])
    used, need = 0, 0
    for k, (left, tokens) in enumerate(entries, 1):
        used += tokens
        need = max(need, left * k + used)
    return need


LENGTHS = st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(0, 25), st.integers(0, 2))


@settings(max_examples=150)
@given(st.lists(LENGTHS, min_size=1, max_size=12))
def test_the_worst_case_is_the_artifacts_at_every_step(drawn):
    """
    Requests try to join one after the other, each at every step until it fits: it must not be
    hopeless then, nor before a request finished.
    """
    pool = 200
    memory = WorstCase(pool)
    waiting = [
        (row(f"r{n}", client=str(client), prompt=f"P{tokens}", output_len=out), gap)
        for n, (tokens, out, gap, client) in enumerate(drawn)
    ]
    running, step = {}, 0
    for order, (made, gap) in enumerate(waiting):
        request = request_of(made, order)
        if not memory.fits_ever(request):
            continue
        hopeless = 0
        for tries in range(300):
            for name in [name for name, (other, since) in running.items()
                         if step - since >= other.max_tokens - 1]:  # fmt: skip
                memory.leave(running.pop(name)[0])
                hopeless = 0
            state = [(r.input_len, r.max_tokens, step - at + 1) for r, at in running.values()]
            clients = {request.client, *(r.client for r, _ in running.values())}
            limit = pool - ADAPTER_TOKENS * len(clients)
            expected = peak(state, [(request.input_len, request.max_tokens)], step) < limit
            assert memory.fits(request, step, []) == expected, (step, tries)
            hopeless = max(hopeless, memory.may_fit_at(request.input_len, request.max_tokens, step))
            assert not (expected and step < hopeless), (step, hopeless)
            if expected:
                break
            step += 1
        memory.join(request, step)
        running[request.id] = (request, step)
        step += gap


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.sampled_from("abc"), st.integers(1, 400), st.integers(1, 60)),
        min_size=1, max_size=25,
    ),
    st.sampled_from(["fcfs", "vtc", "vtc-oracle", "drr"]),
)  # fmt: skip
def test_skipping_alike_passes_changes_nothing(drawn, scheduler):
    rows = [
        row(f"{client}{n}", at=at, client=client, prompt=f"P{n}{tokens}", output_len=out)
        for n, (at, client, tokens, out) in enumerate(sorted(drawn))
    ]

    def seen(skips):
        events = simulate(
            rows, host="artifact", scheduler=scheduler, kv_tokens=900, skips=skips,
            step_time="a10g-2024:llama-2-7b",
        )  # fmt: skip
        return [event for event in events if not isinstance(event, Decode)], sum(
            event.passes for event in of(Decode, events)
        )

    assert seen(True) == seen(False)


@pytest.mark.parametrize("skips", [True, False])
def test_an_end_between_two_admissions_does_not_delay_the_next(skips):
    """a ends after five decode passes; b, whose memory it had, is prefilled after the tenth."""
    rows = [
        row("a", prompt="A500", output_len=6),
        row("c", prompt="C100", output_len=100),
        row("b", prompt="B300", output_len=50),
    ]

    events = simulate(rows, host="artifact", scheduler="fcfs", kv_tokens=1000, skips=skips)

    seconds = {event.request: event.t_us / 1e6 for event in of(FirstToken, events)}
    assert seconds == {"a": 1, "c": 1, "b": 1 + WAIT_PASSES + 1}


def test_what_can_never_run_is_rejected():
    rows = [
        row("a", prompt="A3073", output_len=5),  # above any prefill's budget
        row("b", prompt="B2000", output_len=7968, at=1),  # with 32 for its adapter: one too many
        row("c", prompt="C2000", output_len=7967, at=2),
    ]

    events = simulate(rows, host="artifact", scheduler="fcfs", kv_tokens=POOL)

    assert [event.request for event in of(Reject, events)] == ["a", "b"]
    assert [event.request for event in of(Finish, events)] == ["c"]


def test_the_first_token_comes_with_the_prefill_and_counts_as_an_output():
    """Two passes of a second each: one prefills, one decodes; nothing is served from a cache."""
    rows = [row("a", prompt="A50", output_len=2), row("b", prompt="A50", output_len=2, at=0.5)]

    events = simulate(rows, host="artifact", scheduler="vtc", kv_tokens=POOL)

    assert [event.t_us for event in of(FirstToken, events)] == [1_000_000, 3_000_000]
    assert [event.t_us for event in of(Finish, events)] == [2_000_000, 4_000_000]
    assert [event.extend_len for event in of(Admit, events)] == [50, 50]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"admission": "reserve"}, "admission: host artifact has its own"),
        ({"misfit": "skip"}, "host artifact stops at a request that does not fit"),
        (
            {"inbatch": "share"},
            "host artifact stops at a request that does not fit and has no cache",
        ),
    ],
)
def test_settings_it_does_not_have_are_refused(setting, says):
    with pytest.raises(ConfigError, match=says):
        simulate([row("a")], host="artifact", **setting)

"""The simulated SGLang: prefill batches, estimates, retraction, followers, and memory that adds up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.simulation.host_runs import PHASES, Arrival, HostRun, request_of, row, traffic

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.policies import make_policy
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.engines.prefill_budget import SCALE, TokenRatio
from fairhit_lab.sim.engines.sglang import MAX_BLOCKED_PASSES, SglangHost
from fairhit_lab.sim.memory.token_pool import TokenPool


def make(scheduler: str = "dlpm", *, kv_tokens: int = 2000, policy: dict | None = None, **sizes):
    tree = RadixTree()
    made = make_policy(scheduler, cache=tree, **(policy or {}))
    pool = TokenPool(tree, capacity=kv_tokens)
    return SglangHost(FairQueue(made), pool, **{"max_running": 8, "chunk_len": 64, **sizes})


def at_once(*rows) -> list[Arrival]:
    return [Arrival(step=0, row=each) for each in rows]


def test_prefill_has_passes_of_its_own_and_goes_first():
    """While the second prompt is computed, chunk by chunk, the first request does not decode."""
    run = HostRun(make()).run(
        [
            Arrival(step=0, row=row("short", ("s", 20), output_len=5)),
            Arrival(step=2, row=row("long", ("l", 150), output_len=2)),
        ]
    )

    assert [step.work for _, step in sorted(run.steps.items())][:7] == [
        (1, 20, 20 * 20, 0, 0),
        (0, 0, 0, 1, 21),
        (1, 64, 64 * 64, 0, 0),
        (1, 64, 64 * (2 * 64 + 64), 0, 0),
        (1, 22, 22 * (2 * 128 + 22), 0, 0),
        (0, 0, 0, 2, 22 + 151),
        (0, 0, 0, 1, 23),
    ]
    assert run.steps[4].first == ["long"] and run.steps[4].counts == {"a": 1}


def test_what_is_left_of_a_chunk_is_for_others_and_only_one_prompt_is_cut():
    run = HostRun(make()).run(
        at_once(row("one", ("1", 40)), row("two", ("2", 100)), row("three", ("3", 10)))
    )

    assert run.steps[0].admitted == [("one", 40, False), ("two", 100, False)]
    assert run.steps[0].work[:2] == (2, 64)
    assert run.steps[1].work[:2] == (1, 64)
    assert run.steps[2].admitted == [("three", 10, False)]
    assert run.steps[2].work[:2] == (2, 12 + 10)


def test_the_last_prompt_token_is_computed_though_all_is_cached():
    host = make()
    HostRun(host).run(at_once(row("one", ("p", 64))))

    run = HostRun(host).run([Arrival(step=50, row=row("same", ("p", 64)))])

    assert run.steps[50].admitted == [("same", 1, False)]


def test_followers_wait_for_the_prefix_that_is_being_computed():
    """b wants 40 tokens that a computes now, so it waits; c wants 20, which is not worth it."""
    run = HostRun(make()).run(
        at_once(
            row("a", ("p", 40), ("a", 5), output_len=3),
            row("b", ("p", 40), ("b", 5), output_len=3),
            row("c", ("p", 20), ("c", 5), output_len=3),
        )
    )

    assert run.steps[0].admitted == [("a", 45, False), ("c", 25, False)]
    assert run.steps[1].admitted == [("b", 5, False)]


def test_no_request_follows_for_ever():
    """Who was held in as many passes as allowed computes the prefix, too."""
    host = make(chunk_len=200)
    rows = [row("a", ("p", 40), ("a", 5)), row("b", ("p", 40), ("b", 5))]
    for order, each in enumerate(rows):
        host.enqueue(EngineJob(each, request_of(each, order)))
    host._known["b"].held = MAX_BLOCKED_PASSES

    admitted = [each.job.request.id for each in host.begin_pass(0).admitted]

    assert admitted == ["a", "b"]


def test_followers_neither_have_nor_block_credit():
    """b's request follows a's prompt; c is in debt, and is refilled although b has credit."""
    host = make(policy={"quantum": 10})
    run = HostRun(host).run(
        at_once(
            row("c0", ("c", 30), client="c", output_len=1),
            row("a0", ("p", 34), client="a", output_len=1),
            row("b0", ("p", 34), ("b", 1), client="b", output_len=1),
            row("c1", ("d", 3), client="c", output_len=1),
        ),
    )

    first = [name for name, _, _ in run.steps[0].admitted]
    assert "b0" not in first and run.finished


# Admitted with 0.7 of what a may still emit, both need 160 tokens when they end, if they do.
OUTGROWING = [
    Arrival(step=0, row=row("a0", ("x", 60), client="a", output_len=40)),
    Arrival(step=2, row=row("b0", ("y", 20), client="b", output_len=40)),
]


def test_memory_that_runs_out_takes_from_the_client_with_the_least_credit():
    """The estimate was too low; a, who was served more, gives way, and pays nothing again."""
    host = make(kv_tokens=155, policy={"quantum": 1000})
    run = HostRun(host).run(OUTGROWING)

    assert [name for step in run.steps.values() for name in step.preempted] == ["a0"]
    again = [a for step in run.steps.values() for a in step.admitted if a[2]]
    assert [name for name, _, _ in again] == ["a0"]
    for client, input_len in (("a", 60), ("b", 20)):
        service = host.scheduler.service(client)
        assert (service.extend_len, service.output_len) == (input_len, 40)
    assert host.scheduler.recomputed_len == sum(extend for _, extend, _ in again) > 0


def test_sglang_s_own_rule_takes_who_emitted_least():
    run = HostRun(make(kv_tokens=155, fair_retraction=False)).run(OUTGROWING)

    assert [name for step in run.steps.values() for name in step.preempted] == ["b0"]


def test_the_ratio_sinks_in_600_steps_and_jumps_after_a_retraction():
    ratio = TokenRatio()
    assert ratio.parts / SCALE == 0.7

    ratio.sink(300)
    assert ratio.parts / SCALE == pytest.approx((0.7 + 0.098) / 2)
    ratio.sink(301)
    assert ratio.parts / SCALE == 0.098

    ratio.retracted(emitted=100, requests=3, max_tokens=399)
    assert ratio.parts / SCALE == (100 + 20 * 3) / 400
    ratio.retracted(emitted=1000, requests=3, max_tokens=399)
    assert ratio.parts == SCALE


def test_without_memory_no_pass_runs_until_a_request_leaves(monkeypatch):
    """A pass that finds no memory is the last one, so no quantum is granted while memory is full."""
    host = make(kv_tokens=100)
    passes, propose = [], host.scheduler.propose
    monkeypatch.setattr(host.scheduler, "propose", lambda: passes.append(host._now_us) or propose())

    run = HostRun(host).run(
        at_once(row("a", ("x", 50), output_len=30), row("b", ("y", 50), output_len=30))
    )

    end = next(step for step, what in run.steps.items() if what.finished == ["a"])
    assert passes == [0, 0, end + 1, end + 1]


def test_an_answer_that_is_given_is_found_by_the_next_turn():
    host = make()
    answer = Runs([("answer", 0, 10)])
    HostRun(host).run(at_once(row("turn", ("p", 31), output_len=10, output=answer)))

    turn = type(row("x", ("p", 1)))(
        id="next", client="a", arrival_us=0, output_len=1, max_tokens=1,
        prompt=Runs([("p", 0, 31)]) + answer + Runs([("q", 0, 9)]),
    )  # fmt: skip
    run = HostRun(host).run([Arrival(step=99, row=turn)])

    assert run.steps[99].admitted == [("next", 50 - 40, False)]  # its last token is never computed


def test_the_pass_says_exactly_what_is_computed():
    rows = [
        row(f"r{i}", (f"p{i % 3}", 50), (f"own{i}", 3 * i + 1), output_len=i + 1) for i in range(9)
    ]
    run = HostRun(make(kv_tokens=5000)).run(
        [Arrival(step=2 * i, row=r) for i, r in enumerate(rows)]
    )

    extend = {name: extend for step in run.steps.values() for name, extend, _ in step.admitted}
    length = {r.id: len(r.prompt) for r in rows}
    chunks, computed, attention, decodes, context = map(
        sum, zip(*(step.work for step in run.steps.values()), strict=True)
    )
    assert computed == sum(extend.values())
    assert attention == sum(length[n] ** 2 - (length[n] - extend[n]) ** 2 for n in length)
    assert decodes == sum(r.output_len - 1 for r in rows)
    assert context == sum(length[r.id] + e for r in rows for e in range(1, r.output_len))
    assert sum(sum(s.counts.values()) for s in run.steps.values()) == decodes + len(rows)
    assert sorted(n for s in run.steps.values() for n in s.first) == sorted(length)
    assert chunks >= len(rows)


@pytest.mark.parametrize("scheduler", ["dlpm", "vtc", "lpm"])
@settings(max_examples=30, deadline=None, phases=PHASES)
@given(arrivals=traffic(most=160), tight=st.booleans(), seed=st.integers(0, 99))
def test_passes_in_closed_form_are_the_passes_one_by_one(scheduler, arrivals, tight, seed):
    sizes = {"kv_tokens": 180 if tight else 900, "max_running": 4}

    single = HostRun(make(scheduler, **sizes)).run(arrivals)
    skipped = HostRun(make(scheduler, **sizes)).run(arrivals, skips=True, seed=seed)

    assert skipped.steps == single.steps
    assert skipped.finished == single.finished


@pytest.mark.parametrize("pieces", [[99], [1] * 99, [40, 1, 58]])
def test_skipped_passes_count_for_the_estimate_and_the_cooldown(pieces: list[int]):
    """Neither shows in the steps themselves, only in who is admitted or preempted long after them."""
    host = make()
    each = row("a", ("x", 5), output_len=500)
    host.enqueue(EngineJob(each, request_of(each, 0)))
    host.begin_pass(0)
    host.end_pass(1, 0)
    host.begin_pass(1)
    for piece in pieces:
        host.end_pass(piece, 1)

    assert host._ratio.parts == TokenRatio().parts - 99 * 3010
    assert host.scheduler._pass_number == 1 + 99


def test_alike_passes_are_really_skipped():
    run = HostRun(make()).run(at_once(row("a", ("x", 5), output_len=500)), skips=True)

    assert len(run.steps) == 500
    assert len(run.passes) == 2


@pytest.mark.parametrize("fair", [True, False])
@settings(max_examples=60, deadline=None, phases=PHASES)
@given(arrivals=traffic(most=160))
def test_memory_is_whole_whatever_arrives_and_leaves(fair, arrivals):
    """`check` runs after every arrival, cancellation and pass; at the end nothing is in use."""
    host = make(kv_tokens=165, max_running=5, fair_retraction=fair)

    HostRun(host).run(arrivals)

    assert host._pool.own == 0 and host._pool.tree.pinned == 0
    assert not len(host.scheduler) and not host._known and not host._blocked


def test_what_can_never_fit_is_said():
    host = make(kv_tokens=100)

    assert host.fits_ever(request_of(row("fits", ("x", 90), output_len=8), 0))
    assert not host.fits_ever(request_of(row("not", ("x", 91), output_len=8), 0))

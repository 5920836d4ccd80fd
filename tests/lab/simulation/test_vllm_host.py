"""The simulated vLLM: chunks, budgets, preemption, and a pool whose every block is accounted for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.simulation.host_runs import PHASES, Arrival, HostRun, request_of, row, traffic

from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.policies import make_policy
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.engines.vllm import VllmHost
from fairhit_lab.sim.memory.block_hashes import BlockHashes, tokens_of
from fairhit_lab.sim.memory.block_pool import BlockPool
from fairhit_lab.sim.memory.block_tree import BlockTree
from fairhit_lab.sim.routing.fleet_tree import FleetTree

BLOCK = 16


def make(
    scheduler: str = "dlpm", *, blocks: int = 100, max_num_seqs: int = 8, budget: int = 64, **o
):
    pool = BlockPool(blocks=blocks, block_size=BLOCK)
    policy = make_policy(scheduler, cache=pool.cache, **o)
    return VllmHost(
        FairQueue(policy), pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
    )


def at_once(*rows) -> list[Arrival]:
    return [Arrival(step=0, row=each) for each in rows]


def test_a_long_prompt_is_cut_by_what_the_others_leave_of_the_budget():
    run = HostRun(make(budget=64)).run(
        at_once(row("short", ("s", 20)), row("long", ("l", 150), output_len=2))
    )

    first, second, third = (run.steps[step] for step in range(3))
    assert first.admitted == [("short", 20, False), ("long", 150, False)]
    assert first.work == (2, 64, 20 * 20 + 44 * 44, 0, 0)
    assert second.work == (1, 63, 63 * (2 * 44 + 63), 1, 21)
    assert third.work == (1, 43, 43 * (2 * 107 + 43), 1, 22)
    assert third.first == ["long"] and third.counts == {"a": 2}


def test_full_blocks_are_found_at_once_and_the_last_token_is_always_computed():
    """A prompt of 64 tokens that is cached as a whole costs its last block: 16 tokens."""
    run = HostRun(make(budget=200)).run(
        at_once(row("one", ("p", 64)), row("same", ("p", 64)), row("more", ("p", 64), ("q", 5)))
    )

    assert run.steps[0].admitted == [("one", 64, False), ("more", 5, False), ("same", 16, False)]


def test_an_answer_that_is_given_is_found_by_the_next_turn():
    answer = Runs([("answer", 0, 33)])
    turn = row("turn", ("p", 31), output_len=33, output=answer)
    silent = row("silent", ("p2", 31), output_len=33)
    run = HostRun(make()).run(at_once(turn, silent))
    host = run.host

    later = HostRun(host).run(
        [
            Arrival(step=99, row=_with(row("next"), turn.prompt + answer + Runs([("x", 0, 9)]))),
            Arrival(step=99, row=_with(row("lost"), silent.prompt + answer + Runs([("x", 0, 9)]))),
        ]
    )

    # The last emitted token is never computed, so 63 of 64 are: three blocks.
    assert {name: extend for name, extend, _ in later.steps[99].admitted} == {
        "next": 73 - 48,
        "lost": 73 - 16,
    }


def _with(plain, prompt: Runs):
    return type(plain)(
        id=plain.id, client="a", arrival_us=0, prompt=prompt, output_len=4, max_tokens=4
    )


def test_who_gives_way_comes_back_first_and_pays_nothing_again():
    """Two clients outgrow the memory; one is preempted, recomputed, and charged once."""
    host = make(blocks=9, quantum=1000)
    run = HostRun(host).run(
        at_once(
            row("a0", ("x", 40), client="a", output_len=60),
            row("b0", ("y", 40), client="b", output_len=60),
        )
    )

    names = [name for step in run.steps.values() for name in step.preempted]
    again = [a for step in run.steps.values() for a in step.admitted if a[2]]
    assert names and [name for name, _, _ in again] == names
    for client in "ab":
        service = host.scheduler.service(client)
        assert (service.extend_len, service.output_len) == (40, 60)
    assert host.scheduler.recomputed_len == sum(extend for _, extend, _ in again) > 0


def test_the_pass_says_exactly_what_is_computed():
    """
    Over a run without preemption the sums are those of the requests: a prompt of n tokens of which c
    are cached meets n^2 - c^2 (twice the pairs), and output e of a request is computed on input + e.
    """
    rows = [
        row(f"r{i}", (f"p{i % 3}", 50), (f"own{i}", 3 * i + 1), output_len=i + 1) for i in range(9)
    ]
    run = HostRun(make(blocks=300)).run([Arrival(step=2 * i, row=r) for i, r in enumerate(rows)])

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


@pytest.mark.parametrize("scheduler", ["dlpm", "vtc", "fcfs"])
@settings(max_examples=30, deadline=None, phases=PHASES)
@given(arrivals=traffic(most=160), tight=st.booleans(), seed=st.integers(0, 99))
def test_passes_in_closed_form_are_the_passes_one_by_one(scheduler, arrivals, tight, seed):
    """Evictions and the order of the free blocks included: what comes later depends on them."""
    sizes = {"blocks": 12 if tight else 60, "max_num_seqs": 4}

    single = HostRun(make(scheduler, **sizes)).run(arrivals)
    skipped = HostRun(make(scheduler, **sizes)).run(arrivals, skips=True, seed=seed)

    assert skipped.steps == single.steps
    assert skipped.finished == single.finished
    assert free_blocks(skipped.host._pool) == free_blocks(single.host._pool)


def free_blocks(pool: BlockPool) -> tuple[list[int], int, list[int]]:
    """In the order in which they will be taken."""
    return pool._blank[::-1], pool._untouched, list(pool._named)


def test_alike_passes_are_really_skipped():
    run = HostRun(make(blocks=300)).run(at_once(row("a", ("x", 5), output_len=500)), skips=True)

    assert len(run.steps) == 500
    assert len(run.passes) < 5


@settings(max_examples=80, deadline=None, phases=PHASES)
@given(arrivals=traffic(most=160))
def test_memory_is_whole_whatever_arrives_and_leaves(arrivals):
    """`check` runs after every arrival, cancellation and pass; at the end nothing is in use."""
    host = make(blocks=11, max_num_seqs=4)

    HostRun(host).run(arrivals)

    assert host._pool.free == 11
    assert not len(host.scheduler) and not host._known


def test_what_can_never_fit_is_said():
    host = make(blocks=4)

    assert host.fits_ever(request_of(row("fits", ("x", 60), output_len=4), 0))
    assert not host.fits_ever(request_of(row("not", ("x", 61), output_len=4), 0))


def test_blocks_have_the_same_names_in_every_process():
    """A literal, as Python's own hash of a string differs from run to run."""
    hashes = BlockHashes(Runs([("system", 0, 20), ((5, 6, 7), 0, 3)]), block_size=8).first(2)

    assert [name.hex()[:8] for name in hashes] == ["a155c247", "10599ea9"]


def test_a_block_s_name_depends_on_all_before_it_and_on_no_spelling():
    one = BlockHashes(Runs([("a", 0, 8), ("b", 0, 8)]), block_size=8).first(2)
    other = BlockHashes(Runs([("c", 0, 8), ("b", 0, 8)]), block_size=8).first(2)
    joined = BlockHashes(Runs([("a", 0, 3), ("a", 3, 5), ("b", 0, 9)]), block_size=8).first(2)

    assert one[1] != other[1]
    assert one == joined


def test_unknown_output_takes_memory_and_matches_no_request():
    tokens = tokens_of(row("r", ("p", 4), output_len=3))

    assert len(tokens) == 7
    assert tokens[:4] == Runs([("p", 0, 4)])
    assert tokens[4:] != tokens_of(row("s", ("p", 4), output_len=3))[4:]


def test_jobs_may_be_reported_in_the_order_they_were_admitted():
    """Both end in one pass; the order of the batch, which victims change, is not reported."""
    host = make(blocks=100)
    host.enqueue(EngineJob(row("b", ("x", 5), output_len=1), request_of(row("b", ("x", 5)), 0)))
    host.enqueue(EngineJob(row("a", ("y", 5), output_len=1), request_of(row("a", ("y", 5)), 1)))
    host.begin_pass(0)
    host._running.reverse()

    assert [job.request.id for job in host.end_pass(1, 0)] == ["b", "a"]


@settings(max_examples=60, deadline=None, phases=PHASES)
@given(arrivals=traffic(most=160))
def test_a_router_that_follows_the_pool_knows_what_is_cached(arrivals):
    """Block by block, through evictions and duplicates."""
    host = make(blocks=12, max_num_seqs=4)
    host._mirror = BlockTree(host._pool.cache)
    fleet = FleetTree()
    fleet.add_worker("0")
    host._mirror.tree.listen(Reported(fleet))

    HostRun(host).run(arrivals)

    fleet.check()
    for each in arrivals:
        prompt = each.row.prompt + (each.row.output or Runs(()))
        hashes = BlockHashes(prompt, block_size=BLOCK).first(len(prompt) // BLOCK)
        cached = len(host._pool.find(hashes)) * BLOCK
        # A router may also see that a part of a block agrees, which is no hit.
        assert fleet.match(prompt, len(prompt)).of("0") // BLOCK * BLOCK == cached


class Reported:
    """Hands the news of one worker to a fleet's tree."""

    def __init__(self, tree: FleetTree) -> None:
        self.tree = tree

    def grew(self, tokens, length):
        self.tree.grew("0", tokens, length)

    def shrank(self, tokens, length):
        self.tree.shrank("0", tokens, length)

"""[31] What the theorems' U = w_e L + w_q M becomes where more is admitted than memory can hold (DESIGN 3.5).

With full reservation, what a client may still emit after its last admission fits in memory, w_q M. An
optimistic engine admits any request whose prompt fits. Then the outputs need not be in memory at one time:
of those admitted together, M / t may emit t tokens or more, which adds up to M (1 + 1/2 + 1/3 + ...).
"""

import pytest
from tests.lab.simulation.host_runs import request_of

from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.policies import make_policy
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.engines.vllm import VllmHost
from fairhit_lab.sim.memory.block_pool import BlockPool
from fairhit_lab.traces.trace import TraceRow


def largest_gap(memory: int, outputs: list[int], *, may_preempt: bool = False) -> int:
    """f's service beyond g's, in tokens, until g's first request is admitted; both wait throughout.

    f's requests have one prompt token each and these outputs; g's prompt needs half the memory. Blocks
    are of one token, so that nothing is lost by rounding.
    """
    pool = BlockPool(blocks=memory, block_size=1)
    policy = make_policy("dlpm", cache=pool.cache, quantum=len(outputs))
    host = VllmHost(
        FairQueue(policy), pool, max_num_seqs=len(outputs), max_num_batched_tokens=memory
    )
    first = [_row(f"f{i}", "f", 1, output_len) for i, output_len in enumerate(outputs)]
    later = [_row(f"more{i}", "f", 1, 1) for i in range(3)]
    rows = [*first, *later, _row("g0", "g", memory // 2, 1), _row("g1", "g", 1, 1)]
    for order, row in enumerate(rows):
        host.enqueue(EngineJob(row, request_of(row, order)))
    while host.scheduler.waiting("f") and host.scheduler.waiting("g") == 2:
        gap = host.scheduler.service("f").system_view()
        work = host.begin_pass(0)
        assert work is not None
        assert may_preempt or not work.preempted
        host.end_pass(1, 0)
    return gap


def _row(name: str, client: str, input_len: int, output_len: int) -> TraceRow:
    return TraceRow(
        id=name, client=client, arrival_us=0, prompt=Runs([(name, 0, input_len)]),
        output_len=output_len, max_tokens=output_len,
    )  # fmt: skip


def reserved_bound(memory: int, quantum: int) -> int:
    """2 (w_q M + w_e + Q): proved where all is reserved, and w_e <= w_q."""
    return 2 * (2 * memory + 1 + quantum)


def harmonic(memory: int) -> list[int]:
    """Outputs of which memory / t are t or longer, so that all together always just fit."""
    return [9 * memory // (10 * j) - 1 for j in range(1, memory // 8 + 1)]


@pytest.mark.parametrize(("memory", "times"), [(120, 2.4), (600, 3.8), (3000, 5.2)])
def test_what_is_emitted_after_the_last_admission_outgrows_memory_like_m_log_m(memory, times):
    """All of f's gap came from what was admitted in the first pass, which is to cost U at most."""
    gap = largest_gap(memory, harmonic(memory))

    assert gap > times * (2 * memory + 1)
    assert gap <= len(harmonic(memory)) + 2 * sum(harmonic(memory))


def test_the_bound_of_full_reservation_is_broken_the_more_the_larger_the_memory():
    """The same traffic and the same policy, whose gap would stay below with reservation."""
    ratios = []
    for memory in (120, 600, 3000):
        outputs = harmonic(memory)
        ratios.append(largest_gap(memory, outputs) / reserved_bound(memory, len(outputs)))

    assert ratios == sorted(ratios)
    assert ratios[-1] > 2


def test_what_holds_is_the_outputs_of_all_that_may_run_at_once():
    """
    With preemption not even M log M: who was preempted comes back first, so all that were admitted
    together emit all they want before anybody else is admitted. That many times that long is the
    bound: U <= w_e L + w_q * max_num_seqs * the longest output.
    """
    for memory in (120, 480):
        running, longest = memory // 4, memory // 2
        gap = largest_gap(memory, [longest] * running, may_preempt=True)

        assert gap > memory * memory / 5
        assert gap <= 2 * (2 * running * longest + 1 + running)

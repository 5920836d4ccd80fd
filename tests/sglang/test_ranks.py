"""Equal decisions on all ranks of a model split over processes, which would compute nonsense otherwise.

Each rank has a scheduler of its own that is told of the same requests, and nothing else.
"""

import os
import random

import pytest

from tests.sglang.flood import MAX_TOKENS, flood
from tests.sglang.server import running
from tests.sglang.stepped import Asked, admissions, run_on_ranks

RANKS = 2
REQUESTS, CLIENTS = 36, 9
# Little memory, of which little is kept for outputs, and prompts that need several chunks.
FLAGS = (
    "--max-total-tokens", "1200", "--max-running-requests", "6",
    "--chunked-prefill-size", "128", "--schedule-conservativeness", "0.1",
)  # fmt: skip


def script() -> list[Asked]:
    """Shared prefixes, prompts of one and of five chunks, many outputs, more clients than counters."""
    rng = random.Random(7)
    prefixes = [rng.choices(range(10, 2000), k=rng.choice((60, 200, 500))) for _ in range(6)]
    return [
        Asked(
            rng.randrange(80),
            f"r{number}",
            f"client-{rng.randrange(CLIENTS)}",
            rng.choice(prefixes) + rng.choices(range(10, 2000), k=rng.randrange(1, 60)),
            rng.choice((2, 20, 100)),
        )
        for number in range(REQUESTS)
    ]


@pytest.mark.parametrize(
    ("policy", "more", "retracted"),
    [("dlpm", {}, 1), ("fair", {"FAIRHIT_COST": "context:2,0.01,0.001"}, 0)],
)
def test_ranks_with_other_hashes_clocks_and_speeds_run_the_same_batches(
    tmp_path, policy, more, retracted
):
    """The first one writes metrics, too, and that looks at every client.

    Without a process group there is no rank to take fitted prices from: here they are pinned.
    """
    (tmp_path / "metrics").mkdir()
    shared = {
        "FAIRHIT_QUANTUM": "150", "FAIRHIT_MAX_CLIENTS": "4", "FAIRHIT_MAX_OVERTAKE": "100",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"), **more,
    }  # fmt: skip

    ran = run_on_ranks(tmp_path, RANKS, script(), *FLAGS, environment=shared, policy=policy)

    # All of it happened: retractions (none under fair, whose turns are others), prompts in chunks, metrics.
    assert len(admissions(ran)) >= REQUESTS + retracted
    assert sum(len(batch.names) for batch in ran if batch.is_prefill) > len(admissions(ran))
    assert any((tmp_path / "metrics").iterdir())


@pytest.mark.e2e
@pytest.mark.parametrize("policy", ["dlpm", "fair"])
def test_a_model_split_over_two_processes_is_served_and_they_never_part(tmp_path, policy):
    """SGLang's own check compares what the ranks look up, store and evict, and ends them if they part.

    Under `fair` each rank measures times of its own, and charges by those of the first.
    """
    cores = sorted(os.sched_getaffinity(0))
    environment = {
        "FAIRHIT_QUANTUM": "500",
        "SGLANG_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[-1]}",
        "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
    }

    with running(tmp_path, policy, "--tp", "2", environment=environment) as server:
        many, few, _ = flood(server, callers=24, waiting=16, turns=2)
        assert server.process.poll() is None
        log = server.log

    for rank in ("TP0", "TP1"):
        assert f"{rank}] fairhit: policy {policy}" in log
    assert "Traceback" not in log.partition("fired up")[2]
    assert len(many) >= 24 and len(few) == 2
    assert {answer.outputs for answer in [*many, *few]} == {MAX_TOKENS}

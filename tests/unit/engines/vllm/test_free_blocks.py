"""vLLM's own pool with blocks that are kept: the order in which they are taken."""

import random

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import make_request, make_scheduler  # noqa: E402
from tests.unit.engines.vllm.fair_trace import fair  # noqa: E402
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock  # noqa: E402

from fairhit.engines.vllm import FairScheduler  # noqa: E402
from fairhit.engines.vllm.free_blocks import KeepingBlockQueue  # noqa: E402


def blocks(count: int) -> list[KVCacheBlock]:
    made = [KVCacheBlock(block_id=i) for i in range(count)]
    for block in made:
        block._block_hash = str(block.block_id)
    return made


def ids(queue) -> list[int]:
    return [block.block_id for block in queue.get_all_free_blocks()]


def test_wanted_blocks_are_taken_last_in_their_order_and_later_ones_go_before_them():
    made, wanted = blocks(6), {"0", "1", "3"}
    queue = KeepingBlockQueue(FreeKVCacheBlockQueue(made), wanted.__contains__)

    assert [block.block_id for block in queue.popleft_n(2)] == [2, 4]
    assert ids(queue) == [5, 0, 1, 3]
    queue.append_n([made[2]])
    assert ids(queue) == [5, 2, 0, 1, 3]
    queue.remove(made[0])
    wanted.remove("1")
    assert [queue.popleft().block_id for _ in range(4)] == [1, 5, 2, 3]
    assert ids(queue) == [] and queue.num_free_blocks == 0


def test_blocks_without_content_are_first_wherever_they_were_kept():
    made, wanted = blocks(3), {"0", "1"}
    queue = KeepingBlockQueue(FreeKVCacheBlockQueue(made), wanted.__contains__)
    queue.append(queue.popleft())
    assert ids(queue) == [2, 0, 1]
    for block in made:
        block._block_hash = None  # a reset

    assert [block.block_id for block in queue.popleft_n(3)] == [2, 0, 1]
    queue.append_n(made)
    assert ids(queue) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_when_nothing_is_wanted_the_order_is_vllm_s(seed):
    rng = random.Random(seed)
    ours, theirs = blocks(12), blocks(12)
    queue = KeepingBlockQueue(FreeKVCacheBlockQueue(ours), lambda _: False)
    stock, used = FreeKVCacheBlockQueue(theirs), []
    for _ in range(200):
        if used and rng.random() < 0.5:
            at = used.pop(rng.randrange(len(used)))
            queue.append(ours[at])
            stock.append(theirs[at])
        elif len(used) < 12:
            taken = [block.block_id for block in queue.popleft_n(1)]
            assert taken == [block.block_id for block in stock.popleft_n(1)]
            used += taken
        assert ids(queue) == ids(stock)


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"scheduler": "fair"}, True),
        ({"scheduler": "fair", "eviction": "lru"}, False),
        ({"scheduler": "dlpm"}, False),
    ],
)
def test_only_fair_with_wanted_last_changes_the_queue(settings, keeps):
    scheduler = make_scheduler(FairScheduler, **settings)

    kind = KeepingBlockQueue if keeps else FreeKVCacheBlockQueue
    assert type(scheduler.kv_cache_manager.block_pool.free_block_queue) is kind


@pytest.mark.parametrize(("eviction", "hits"), [("wanted-last", {96}), ("lru", {0, 16})])
def test_what_a_waiting_prompt_begins_with_outlives_what_was_used_later(eviction, hits):
    """Of 19 blocks 12 are cached, 6 of each prompt; a third one takes 12, while the first one waits again.

    Least recently used first leaves one block of the first prompt, and none up to vLLM 0.20.
    """
    trace = fair(scheduler="fair", eviction=eviction, blocks=20, max_num_seqs=1, budget=64)
    for name, client in (("first", "a"), ("second", "b")):
        trace.add(make_request(name, [ord(client)] * 100, client=client, max_tokens=1))
        trace.run()
    trace.add(make_request("large", [3] * 176, client="c", max_tokens=8))
    trace.step()
    trace.add(make_request("again", [ord("a")] * 100, client="a", max_tokens=1))
    trace.run()

    assert dict(trace.admitted)["again"] in hits

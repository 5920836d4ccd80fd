"""Prompts that were charged by an estimate, and caches known only by hashes that can collide."""

from dataclasses import replace

import pytest

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.costs import ENGINE
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.core.waiting.index import WaitingIndex
from fairhit.policies import make_policy

CHARGING = ("dlpm", "dlpm-predict", "drr", "vtc", "vtc-predict", "lcf")


def request(order: int, client: str = "a", *prompt: int) -> Request:
    return Request(
        id=str(order), client=client, prompt=prompt, input_len=100, max_tokens=8, order=order
    )


def scheduler_of(name: str) -> FairQueue:
    return FairQueue(make_policy(name, cache=BlockCache(block_size=1)))


def admit(scheduler: FairQueue, asked: Request, *, extend_len: int) -> None:
    scheduler.add(asked)
    scheduler.begin_pass()
    assert scheduler.propose() is asked
    scheduler.admit(asked, extend_len=extend_len)


@pytest.mark.parametrize("name", CHARGING)
@pytest.mark.parametrize(("input_len", "extend_len"), [(100, 30), (140, 90), (60, 60), (0, 0)])
def test_a_corrected_charge_is_what_the_truth_would_have_cost(
    name: str, input_len: int, extend_len: int
) -> None:
    """A client charged 50 of 100 that took another amount has the credit as if that had been known."""
    scheduler, asked = scheduler_of(name), request(1)
    admit(scheduler, asked, extend_len=50)
    before = scheduler.credit("a")
    scheduler.correct(asked, input_len=input_len, extend_len=extend_len)
    more = extend_len - 50 if name in {"dlpm", "dlpm-predict"} else input_len - 100

    assert scheduler.credit("a") == before - more * UNITS_PER_TOKEN
    service = scheduler.service("a")
    assert (service.extend_len, service.input_len) == (extend_len, input_len)


@pytest.mark.parametrize("name", CHARGING)
def test_what_is_given_back_counts_at_once(name: str) -> None:
    """Both owe, a more than b; what a was charged too much is given back, and a is next."""
    scheduler = scheduler_of(name)
    first, second = request(1, "a", 1), request(2, "b", 2)
    admit(scheduler, first, extend_len=100)
    admit(scheduler, second, extend_len=100)
    scheduler.decode(first, 20_000)
    scheduler.decode(second, 10_000)
    waiting = request(3, "b", 3), request(4, "a", 4)
    for each in waiting:
        scheduler.add(each)
    scheduler.begin_pass()
    assert scheduler.propose() is waiting[0]
    scheduler.correct(first, input_len=0, extend_len=0)
    scheduler.correct(second, input_len=40_000, extend_len=40_000)

    assert scheduler.propose() is waiting[1]


@pytest.mark.parametrize("name", ["fcfs", "lpm"])
def test_those_that_charge_nothing_need_no_correction(name: str) -> None:
    scheduler = scheduler_of(name)
    asked = request(1)
    admit(scheduler, asked, extend_len=50)
    scheduler.correct(asked, input_len=100, extend_len=20)
    scheduler.cancel(asked)

    assert scheduler.service("a").extend_len == 20


def wait(index: WaitingIndex, asked: Request) -> None:
    index.add(asked)
    index.open(asked.client)


def test_two_prompts_with_one_hash_are_a_wrong_depth_and_no_crash() -> None:
    """The gateway's chunks are CRCs, which can be made to collide: 9 comes after 1 and after 2."""
    cache = BlockCache(block_size=1)
    index = waiting_index(cache)
    asked = [request(1, "a", 1, 9, 5), request(2, "b", 2, 9, 6), request(3, "c", 2, 9, 7)]
    for each in asked:
        wait(index, each)
    for block in (1, 2, 9, 5, 6, 7):
        cache.insert(block)
    assert index.match_len(asked[0]) == 3
    for block in (9, 2, 7, 1, 5, 6):
        cache.evict(block)
        cache.insert(block)
    cache.clear()
    for block in (9, 1, 2):
        cache.insert(block)
    for each in asked[::2]:
        index.remove(each)
    cache.evict(9)
    index.remove(asked[1])
    assert not len(index)


@pytest.mark.parametrize(("input_len", "extend_len"), [(100, 30), (140, 90), (0, 0)])
@pytest.mark.parametrize("prepay", ["none", "expected"])
def test_a_correction_is_at_the_prices_of_the_charge(
    input_len: int, extend_len: int, prepay: str
) -> None:
    """Prices that doubled meanwhile would give back twice what was charged, and leave a credit behind."""
    scheduler = FairQueue(make_policy("fair", cache=BlockCache(block_size=1), prepay=prepay))
    charges = scheduler.collect_charges()
    dear = replace(ENGINE, output=2 * ENGINE.output, context=2 * ENGINE.context, attention=7)
    first = request(1, "a", 1)
    admit(scheduler, first, extend_len=50)
    scheduler.follow(lambda _: dear)
    scheduler.decode(first, 3)
    scheduler.decode(first, 700)  # in debt, so that the next one takes a refill
    admit(scheduler, request(2, "a", 2), extend_len=100)
    assert scheduler.cost == dear
    charges.clear()
    scheduler.decode(first, 1)
    scheduler.correct(first, input_len=input_len, extend_len=extend_len)
    true, charged = ENGINE.prefill(extend_len, input_len - extend_len), ENGINE.prefill(50, 50)
    if input_len:
        true, charged = (
            true + ENGINE.decode(input_len, 0, 704),
            charged + ENGINE.decode(100, 0, 704),
        )

    assert charges == {"a": ENGINE.decode(100, 703, 1) + true - charged}

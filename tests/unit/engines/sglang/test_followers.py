"""Followers in SGLang: requests deferred while a prompt with their prefix is prefilled."""

import pytest
from tests.unit.engines.sglang.sglang_loop import Cache, Engine, Req

from fairhit.core.request import Request
from fairhit.engines.sglang.followers import MIN_SHARED_LEN, Followers

SHARED = tuple(range(100, 100 + MIN_SHARED_LEN))


def request(number: int, *prompt: int) -> Request:
    return Request(
        id=f"{number}", client="a", prompt=prompt, input_len=9, max_tokens=1, order=number
    )


@pytest.mark.parametrize(
    ("page_len", "units", "is_worth_it"),
    [
        (1, MIN_SHARED_LEN, True),
        (1, MIN_SHARED_LEN - 1, False),
        (16, MIN_SHARED_LEN // 16, True),
        (16, MIN_SHARED_LEN // 16 - 1, False),
    ],
)
def test_it_is_worth_waiting_for_so_many_tokens_in_pages_of_any_size(page_len, units, is_worth_it):
    cache = Cache()
    cache.page_len = page_len
    followers = Followers(cache)
    followers.on_prefill(request(0, *SHARED))

    assert followers.defers(request(1, *SHARED[:units], 1)) == is_worth_it


def test_what_is_cached_already_is_not_waited_for():
    cache = Cache()
    followers = Followers(cache)
    followers.on_prefill(request(0, *SHARED))
    cache.put(SHARED[:1])

    assert not followers.defers(request(1, *SHARED, 1))


def test_each_that_is_computed_is_waited_for_until_it_is_done():
    followers = Followers(Cache())
    first, second = request(0, 1, *SHARED), request(1, 2, *SHARED)
    like = [request(2 + number, 1 + number, *SHARED, 7) for number in range(2)]
    followers.on_prefill(first)
    assert [followers.defers(each) for each in like] == [True, False]

    followers.on_prefill(second)
    assert [followers.defers(each) for each in like] == [True, True]

    followers.remove(first)
    assert [followers.defers(each) for each in like] == [False, True]


@pytest.fixture
def engine() -> Engine:
    """An engine that prefills a prompt for which another request is deferred."""
    made = Engine(quantum=1000, room=1000)
    made.send("leader", *SHARED, 1)
    made.run_pass()
    made.send("follower", *SHARED, 2)
    assert made.run_pass() == []
    return made


def leader_of(engine: Engine) -> Req:
    (leader,) = engine.batch
    return leader


def test_no_request_waits_for_a_prompt_whose_caller_hung_up(engine):
    engine.abort(leader_of(engine))

    assert [req.client for req in engine.run_pass()] == ["follower"]


def test_no_request_waits_for_a_prompt_that_ended_without_an_output(engine):
    engine.end(leader_of(engine))

    assert [req.client for req in engine.run_pass()] == ["follower"]


def test_no_request_waits_for_a_prompt_that_was_retracted(engine):
    """A retracted request is admitted again at an unknown time."""
    leader = leader_of(engine)
    engine.batch.remove(leader)
    engine.queue.append(leader)

    assert [req.client for req in engine.run_pass(skip=lambda req: req is leader)] == ["follower"]


def test_who_was_retracted_waits_for_nobodys_prompt():
    """A preempted request is proposed first, and was deferred once."""
    engine = Engine(quantum=1000, room=1000)
    retracted = engine.send("a", *SHARED, 1)
    engine.through(engine.run_pass())
    engine.cache.evict(1000)
    engine.send("b", *SHARED, 2)
    engine.run_pass()
    engine.batch.remove(retracted)
    engine.queue.append(retracted)

    assert engine.run_pass() == [retracted]

"""`fair` by example: what is charged when, and who goes first."""

import pytest

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import ContextCost
from fairhit.core.engine_time import LEAST_PASSES, PassWork
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN, TokenCost
from fairhit.errors import ConfigError
from fairhit.policies import make_policy
from fairhit.policies.fair import FIRST_OUTPUTS, UNPAID, Fair

FAR = 100_000


def request(number, client, prompt=None, *, input_len=10, max_tokens=1000):
    prompt = tuple((number, at) for at in range(input_len)) if prompt is None else tuple(prompt)
    return Request(
        id=str(number),
        client=client,
        prompt=prompt,
        input_len=len(prompt),
        max_tokens=max_tokens,
        order=number,
    )


def credit(queue, client):
    return queue.credit(client) / UNITS_PER_TOKEN


def admitted(queue, one, *, extend_len=None):
    queue.add(one)
    queue.begin_pass()
    assert queue.propose() is one
    queue.admit(one, extend_len=extend_len or one.input_len)


def test_outputs_are_charged_as_they_are_emitted_while_little_is_expected():
    queue = FairQueue(Fair(cache=RadixTree(), cost=TokenCost()))
    one = request(1, "a")
    admitted(queue, one)

    assert credit(queue, "a") == 1024 - 10
    queue.decode(one, 3)
    assert credit(queue, "a") == 1024 - 10 - 6


def test_beyond_the_allowance_expected_outputs_are_charged_at_admission_and_corrected_at_the_end():
    """The context of the second request makes its 256 expected outputs dearer than all that may be unpaid."""
    per_output = UNPAID // FIRST_OUTPUTS + 1
    cost = ContextCost(output=per_output * UNITS_PER_TOKEN)
    queue = FairQueue(Fair(cache=RadixTree(), cost=cost))
    one = request(1, "a")
    admitted(queue, one)

    expected = 1024 - 10 - FIRST_OUTPUTS * per_output
    assert credit(queue, "a") == expected
    queue.decode(one, 200)
    assert credit(queue, "a") == expected
    queue.finish(one)
    assert credit(queue, "a") == 1024 - 10 - 200 * per_output


def test_the_mean_of_the_last_outputs_is_expected_and_more_is_charged_when_emitted():
    per_output = UNPAID
    cost = ContextCost(output=per_output * UNITS_PER_TOKEN)
    queue = FairQueue(Fair(cache=RadixTree(), cost=cost))
    for number, outputs in ((1, 2), (2, 4)):
        one = request(number, "a")
        admitted(queue, one)
        queue.decode(one, outputs)
        queue.finish(one)
    before = credit(queue, "a")
    one = request(3, "a")
    admitted(queue, one)
    rounds = queue.refill_rounds

    after = credit(queue, "a")
    assert (before - 10 - 3 * per_output - after) % 1024 == 0  # refills apart
    queue.decode(one, 4)
    assert credit(queue, "a") == after - per_output
    assert queue.refill_rounds == rounds


def test_a_client_in_debt_uses_its_cached_prefix_before_another_brings_its_own():
    """Plain DLPM with the same quantum takes b's request, which has no match, and may evict a's prefix."""
    document = [("doc", at) for at in range(3000)]
    orders = {}
    for overdraft in (0, 1024):
        tree = RadixTree()
        queue = FairQueue(Fair(cache=tree, cost=TokenCost(), overdraft=overdraft, prepay="none"))
        first = request(1, "a", [*document, ("q", 1)])
        queue.add(request(9, "b", input_len=2000))
        queue.add(first)
        tree.release(tree.insert(tree.acquire(tuple(document), 0), tuple(document), 0))
        queue.begin_pass()
        assert queue.propose() is first
        queue.admit(first, extend_len=2500)  # most of it was computed
        queue.add(request(2, "a", [*document, ("q", 2)]))
        orders[overdraft] = queue.propose().client

    assert orders == {0: "b", 1024: "a"}


def test_prices_change_at_a_refill_and_at_no_other_time():
    queue = FairQueue(Fair(cache=RadixTree()))
    queue.add(request(1, "a", input_len=10))
    queue.begin_pass()
    queue.propose()  # a refill
    before = queue.policy.cost.current
    work = PassWork()
    work.add_chunk(100, 0)
    work.add_decode(10_000)
    for _ in range(4 * LEAST_PASSES):
        queue.fit.observe(work, 0.1)

    queue.begin_pass()
    queue.propose()
    assert queue.policy.cost.current is before
    queue.policy.ledger.charge("a", FAR * UNITS_PER_TOKEN)
    queue.begin_pass()
    queue.propose()

    assert queue.policy.cost.current != before


def test_a_pinned_cost_is_not_fitted():
    assert FairQueue(Fair(cache=RadixTree(), cost=TokenCost())).fit is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"near": 0}, "near: expected a whole number of tokens >= 1, got 0"),
        ({"eviction": "never"}, "eviction: expected one of wanted-last, lru, got 'never'"),
        ({"prepay": "all"}, "prepay: expected one of expected, none, got 'all'"),
        (
            {"quantum": 10**13},
            "quantum: expected at most 1,000,000,000,000 tokens, got 10000000000000",
        ),
        ({"overdraft": 2000}, "overdraft: expected at most the quantum, 1024, got 2000"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(settings, message):
    with pytest.raises(ConfigError) as caught:
        make_policy("fair", cache=RadixTree(), **settings)
    assert str(caught.value) == message


def test_a_policy_without_an_overdraft_says_so():
    with pytest.raises(
        ConfigError, match=r"^overdraft: the scheduler vtc has none; expected with fair$"
    ):
        make_policy("vtc", cache=RadixTree(), overdraft=5)

"""What a policy charged each client, as an engine exports it beside the measured time."""

import pytest

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.policy import KeepsLedger
from fairhit.core.request import Request
from fairhit.core.service import Weights
from fairhit.policies import make_policy

CHARGING = ("dlpm", "dlpm-predict", "drr", "fair", "vtc", "vtc-predict", "lcf")


def request(order: int, client: str) -> Request:
    return Request(
        id=str(order), client=client, prompt=(order,), input_len=100, max_tokens=400, order=order
    )


def served(
    name: str, *, outputs: int, weights: Weights | None = None
) -> tuple[FairQueue, dict[str, int]]:
    """Two requests of client a, one of b, each served to its end after so many outputs."""
    settings = {} if weights is None else {"weights": weights}
    queue = FairQueue(make_policy(name, cache=BlockCache(block_size=1), **settings))
    charges = queue.collect_charges()
    for order, client in enumerate("aba", start=1):
        queue.add(request(order, client))
    queue.begin_pass()
    while asked := queue.propose():
        queue.admit(asked, extend_len=30)
        for _ in range(outputs):
            queue.decode(asked, 1)
        queue.finish(asked)
    return queue, charges


@pytest.mark.parametrize("name", CHARGING)
@pytest.mark.parametrize("outputs", [3, 300])
@pytest.mark.parametrize("weights", [None, Weights({"a": 3, "b": "0.7"})])
def test_what_was_charged_is_the_cost_of_what_was_served(
    name: str, outputs: int, weights: Weights | None
) -> None:
    """Expected outputs that were not emitted are given back; refills and weights do not count."""
    queue, charges = served(name, outputs=outputs, weights=weights)
    policy = queue.policy
    assert isinstance(policy, KeepsLedger)
    each = policy.cost.prompt(100, 30) + policy.cost.outputs(100, 0, outputs)

    assert charges == {"a": 2 * each, "b": each}


def test_a_corrected_prompt_is_charged_as_it_was() -> None:
    queue = FairQueue(make_policy("dlpm", cache=BlockCache(block_size=1)))
    charges = queue.collect_charges()
    asked = request(1, "a")
    queue.add(asked)
    queue.begin_pass()
    assert queue.propose() is asked
    queue.admit(asked, extend_len=100)
    charges.clear()
    queue.correct(asked, input_len=100, extend_len=40)

    assert charges == {"a": -60 * 10**8}


@pytest.mark.parametrize("name", ["fcfs", "lpm"])
def test_a_policy_that_charges_nothing_has_none(name: str) -> None:
    _, charges = served(name, outputs=3)

    assert charges == {}

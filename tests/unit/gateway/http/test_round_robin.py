"""Queues of several owners, served in turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.gateway.http.round_robin import OwnerQueues


def popped(queue: OwnerQueues[str]) -> list[str]:
    items = []
    while queue:
        items.append(queue.pop())
    return items


def test_owners_take_turns_and_each_has_its_oldest_first() -> None:
    queue: OwnerQueues[str] = OwnerQueues()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(item[0], item)

    assert list(queue) == ["a1", "a2", "a3", "b1", "b2", "c1"]
    assert popped(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_what_is_removed_is_not_served_and_leaves_no_empty_queue() -> None:
    queue: OwnerQueues[str] = OwnerQueues()
    for item in ("a1", "b1"):
        queue.add(item[0], item)
    queue.remove("a", "a1")
    queue.remove("a", "a1")

    assert popped(queue) == ["b1"]


def test_an_item_is_added_once() -> None:
    queue: OwnerQueues[str] = OwnerQueues()
    queue.add("a", "a1")
    with pytest.raises(AssertionError):
        queue.add("a", "a1")


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_no_owner_is_served_twice_while_another_waits(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added meanwhile."""
    queue: OwnerQueues[tuple[int, int]] = OwnerQueues()
    served_since = dict.fromkeys(range(4), 0)
    for number, (owner, pops) in enumerate(steps):
        if pops and queue:
            waiting = {one for one, _ in queue}
            served, _ = queue.pop()
            for one in waiting - {served}:
                assert served_since[one] < 3, "each of the others was served once at most"
                served_since[one] += 1
            served_since[served] = 0
        else:
            if owner not in {one for one, _ in queue}:
                served_since[owner] = 0
            queue.add(owner, (owner, number))

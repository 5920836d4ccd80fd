"""The fleet's tree by example: what was said, what was sent, and which of the two counts when."""

import pytest

from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit_lab.sim.routing.fleet_tree import FleetTree


def request(prompt: str, order: int = 0) -> Request:
    return Request(
        id=f"{prompt}-{order}",
        client="a",
        prompt=Runs.of(tuple(prompt)),
        input_len=len(prompt),
        max_tokens=1,
        order=order,
    )


def fleet(*workers: str) -> FleetTree:
    made = FleetTree()
    for worker in workers:
        made.add_worker(worker)
    return made


def matched(tree: FleetTree, prompt: str, worker: str) -> int:
    return tree.match(tuple(prompt), len(prompt)).of(worker)


def test_a_late_eviction_does_not_take_back_what_was_sent_after_it() -> None:
    """
    A6.8: the worker evicted a prompt, and before the event arrives the prompt is sent there again. What
    was evicted is the old copy; the new one is about to be computed.
    """
    tree = fleet("w")
    tree.grew("w", tuple("prompt"), 6)
    again = request("prompt")
    tree.sent(again, "w")
    tree.shrank("w", tuple("prompt"), 0)

    assert matched(tree, "prompt", "w") == 6
    tree.ended(again)  # and if it is rejected there, nothing is left of it
    assert matched(tree, "prompt", "w") == 0
    assert len(tree) == 0


def test_what_is_on_its_way_attracts_the_next_one() -> None:
    """Two requests with one prompt at one instant: the second finds the first."""
    tree = fleet("w", "v")
    tree.sent(request("system, first"), "w")

    assert matched(tree, "system, second", "w") == len("system, ")
    assert matched(tree, "system, second", "v") == 0


def test_it_is_confirmed_when_the_worker_says_so() -> None:
    tree = fleet("w")
    sent = request("prompt")
    tree.sent(sent, "w")
    tree.grew("w", tuple("prompt"), 6)
    tree.ended(sent)

    assert matched(tree, "prompt", "w") == 6


def test_a_lost_worker_holds_nothing_and_the_others_keep_theirs() -> None:
    tree = fleet("w", "v")
    for worker in ("w", "v"):
        tree.grew(worker, tuple("shared"), 6)
    tree.grew("w", tuple("shared by w"), 11)
    lost = request("shared by w alone")
    tree.sent(lost, "w")
    tree.drop_worker("w")
    tree.ended(lost)  # late, and of no meaning any more
    tree.add_worker("w")

    assert matched(tree, "shared by w alone", "w") == 0
    assert matched(tree, "shared by w alone", "v") == 6
    tree.check()


def test_a_prompt_that_all_hold_is_one_node() -> None:
    """A system prompt at a thousand workers: one level, whose holders are not copied."""
    workers = [f"w{n}" for n in range(1000)]
    tree = fleet(*workers)
    for worker in workers:
        tree.grew(worker, tuple("system"), 6)
    tree.grew("w7", tuple("system, and more"), 16)
    longest, system = tree.match(tuple("system, and more"), 16).by_length

    assert (longest[0], list(longest[1])) == (16, ["w7"])
    assert (system[0], len(system[1])) == (6, 1000)
    assert len(tree) == 2
    assert next(iter(tree.match(tuple("system"), 6).by_length))[1] is system[1]


def test_what_parted_is_joined_again() -> None:
    """Cut short by evictions and computed again, a hundred times: still one node."""
    tree = fleet("w", "v")
    tree.grew("v", tuple("a" * 100), 100)
    for length in range(99):
        tree.grew("w", tuple("a" * 100), 100)
        tree.shrank("w", tuple("a" * 100), length)
    tree.grew("w", tuple("a" * 100), 100)

    assert len(tree) == 1


def test_a_full_tree_learns_no_more_and_says_so() -> None:
    tree = FleetTree(max_nodes=2)
    tree.add_worker("w")
    for letter in "abc":
        tree.grew("w", (letter,), 1)

    assert [matched(tree, letter, "w") for letter in "abc"] == [1, 1, 0]
    assert tree.skipped == 1
    tree.shrank("w", ("a",), 0)
    tree.grew("w", ("c",), 1)
    assert matched(tree, "c", "w") == 1


def applied(tree: FleetTree, *events: tuple[str, str, Runs, int]) -> None:
    for what, worker, prompt, length in events:
        (tree.grew if what == "grew" else tree.shrank)(worker, prompt, length)
    tree.check()


@pytest.mark.parametrize("change", ["cut", "split", "longer", "gone", "merged"])
def test_what_happens_between_a_match_and_its_dispatch_counts(change: str) -> None:
    """The place where a prompt parted is remembered only until the tree changes, however it does."""
    tree = fleet("w", "v")
    known, longer = Runs.of(tuple("known")), Runs.of(tuple("known at first"))
    sent = request("known as well")
    other = request("known a" if change == "merged" else "known as said")
    if change in {"gone", "merged"}:
        tree.sent(other, "v")
    if change != "gone":
        applied(tree, ("grew", "w", known if change in {"cut", "longer"} else longer, 5))
    if change in {"split", "merged"}:
        applied(tree, ("grew", "w", longer, 14))
    tree.match(sent.prompt, sent.input_len - 1)
    if change == "cut":
        applied(tree, ("shrank", "w", known, 3))
    elif change == "split":
        applied(tree, ("grew", "v", longer, 10))
    elif change == "longer":
        tree.sent(other, "v")
    else:
        tree.ended(other)
    tree.sent(sent, "v")
    tree.check()

    assert matched(tree, "known as well", "v") == sent.input_len


def test_an_event_of_less_than_what_was_matched() -> None:
    tree = fleet("w", "v")
    prompt = Runs.of(tuple("system, and more"))
    applied(tree, ("grew", "w", Runs.of(tuple("system, and")), 11))
    tree.match(prompt, 16)
    applied(tree, ("grew", "v", prompt, 6))

    assert matched(tree, "system, and more", "v") == 6


def test_a_prompt_may_be_cut_and_computed_again() -> None:
    """Events are of the prompt object that made a node, which has been cut since."""
    tree = fleet("w")
    prompt = Runs.of(tuple("abcdefgh"))
    applied(tree, ("grew", "w", prompt, 8), ("shrank", "w", prompt, 3), ("grew", "w", prompt, 8))

    assert matched(tree, "abcdefgh", "w") == 8


def test_what_is_left_of_a_prompt_is_all_that_is_left_behind_it() -> None:
    """The tokens behind a prompt are evicted with its end."""
    tree = fleet("w", "v")
    prompt, same = Runs.of(tuple("abcdefgh")), Runs.of(tuple("abcdefgh"))
    applied(
        tree,
        ("grew", "w", prompt, 8),
        ("shrank", "w", prompt, 4),
        ("grew", "v", prompt, 4),
        ("grew", "w", same, 8),
        ("shrank", "w", prompt, 2),
    )

    assert (matched(tree, "abcdefgh", "w"), matched(tree, "abcdefgh", "v")) == (2, 4)

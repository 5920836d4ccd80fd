"""DLPM decision by decision: what the repaired Algorithm 1 does where the printed one goes wrong."""

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue, RequestState
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.policies.dlpm import DLPM
from tests.unit.policies.queue import Queue


class Engine:
    """A scheduler over a tree in which some clients' prefixes are cached; extend is what is not."""

    def __init__(self, *, quantum, warm=""):
        self.tree = RadixTree()
        for client in warm:
            prompt = (client,) * 9
            self.tree.release(self.tree.insert(self.tree.acquire(prompt, 0), prompt, 0))
        self.policy = DLPM(cache=self.tree, quantum=quantum)
        self.scheduler = FairQueue(self.policy)
        self.order = 0

    def wait(self, clients, *, length=10):
        """One request for each letter: the client's prefix of nine tokens and one of its own."""
        for client in clients:
            self.order += 1
            prompt = (client,) * 9 + tuple((self.order, at) for at in range(length - 9))
            self.scheduler.add(
                Request(
                    id=f"{client}{self.order}",
                    client=client,
                    prompt=prompt,
                    input_len=length,
                    max_tokens=1,
                    order=self.order,
                )
            )

    def admit_all(self):
        """Run a scheduling pass; return the clients in the order of admission."""
        self.scheduler.begin_pass()
        order = ""
        while request := self.scheduler.propose():
            matched = self.tree.match_len(request.prompt)
            self.scheduler.admit(request, extend_len=request.input_len - matched)
            order += request.client
        return order


def test_hot_prefixes_wait_once_their_client_is_out_of_deficit():
    """
    A quantum of 4 buys client a four one-token extends; then b, who needs ten, has its turn.
    """
    engine = Engine(quantum=4, warm="a")
    engine.wait("aaaaaab")

    assert engine.admit_all() == "aaaabaa"


def test_cached_tokens_are_free_and_computed_ones_are_not():
    """
    Charging cached tokens would undo locality: b pays ten for what costs a one.
    """
    engine = Engine(quantum=20, warm="a")
    engine.wait("ab")
    engine.admit_all()

    assert engine.policy.credit("a") == (20 - 1) * UNITS_PER_TOKEN
    assert engine.policy.credit("b") == (20 - 10) * UNITS_PER_TOKEN


def test_after_a_refill_the_pass_starts_again_from_the_longest_match():
    """
    [13] a has 0 and the longer match, b has 5. The printed pass goes a (no credit), b, and at the
    next b refills both and goes on with b; starting again, a comes first.
    """
    engine = Engine(quantum=15, warm="a")
    engine.wait("a", length=24)
    engine.wait("b")
    assert engine.admit_all() == "ab"
    engine.wait("abb")

    assert engine.admit_all() == "bab"


def test_one_refill_is_enough_however_deep_the_debt():
    """
    The printed refill adds one quantum a pass; with a debt of 10,000 quanta the engine would idle.
    """
    engine = Engine(quantum=1)
    engine.wait("a", length=10_000)
    assert engine.admit_all() == "a"
    assert engine.policy.credit("a") == -9_999 * UNITS_PER_TOKEN
    engine.wait("a")

    assert engine.admit_all() == "a"
    assert engine.policy.ledger.rounds == 1 + 10_000


def test_debt_survives_leaving_and_rejoining():
    """
    [14] Else a client would flood, leave, and come back as new: Theorem 4.2 would fail.
    """
    engine = Engine(quantum=4)
    engine.wait("f", length=100)
    engine.admit_all()  # f is at -96 and has nothing left waiting
    engine.wait("f" + "g" * 9)

    assert engine.admit_all() == "g" * 9 + "f"


def test_a_client_that_cannot_be_scheduled_has_no_say_in_a_refill():
    """
    A held request with credit must not stop the refill of everyone else for ever.
    """
    engine = Engine(quantum=100)
    engine.wait("a")
    engine.scheduler.begin_pass()
    held = engine.scheduler.propose()
    engine.scheduler.block(held)
    engine.wait("b")

    assert engine.admit_all() == "b"


def test_what_is_due_and_does_not_fit_is_not_overtaken_any_further():
    """
    Three better matches have overtaken a's first request. It does not fit yet: what gets free while
    it waits is not taken by the rest of a's, or it would wait for ever. b is another matter.
    """
    hot = tuple(range(10))
    queue = Queue("dlpm", quantum=1_000, max_overtake=2)
    queue.tree.release(queue.tree.insert(queue.tree.acquire((), 0), hot, 0))
    queue.wait("a")
    queue.wait("aaaaa", prompt=hot)
    queue.wait("b")

    assert queue.admit(3) == "aaa"
    assert queue.admit(too_large="0") == "b"
    assert queue.admit(1) == "a"
    assert queue.scheduler.state(queue.requests[0]) is RequestState.RUNNING
    assert queue.admit() == "aa"

"""VTC decision by decision: counters, the lift, and its two corner cases."""

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.policies import make_policy


class Engine:
    """A scheduler under VTC; requests of ten input tokens by default."""

    def __init__(self, **settings):
        self.policy = make_policy("vtc", cache=RadixTree(), **settings)
        self.scheduler = FairQueue(self.policy)
        self.order = 0

    def wait(self, clients, *, input_len=10):
        for client in clients:
            self.order += 1
            self.scheduler.add(
                Request(
                    id=str(self.order),
                    client=client,
                    prompt=(self.order,),
                    input_len=input_len,
                    max_tokens=1,
                    order=self.order,
                )
            )

    def admit(self, number=1_000):
        self.scheduler.begin_pass()
        order = ""
        while len(order) < number and (request := self.scheduler.propose()):
            self.scheduler.admit(request, extend_len=1)
            order += request.client
        return order

    def counter(self, client):
        return -self.policy.credit(client) / UNITS_PER_TOKEN


def test_the_least_served_client_goes_first_and_the_oldest_head_wins_a_tie():
    """
    Two requests of a came first; after one of them it is b's turn.
    """
    engine = Engine()
    engine.wait("aabb")

    assert engine.admit() == "abab"


def test_a_prompt_counts_in_full_even_if_it_is_cached():
    """
    As in the paper; `charge` = extend makes it the system view.
    """
    papers, system = Engine(), Engine(charge="extend")
    for engine in (papers, system):
        engine.wait("a")
        engine.admit()

    assert (papers.counter("a"), system.counter("a")) == (10, 1)


def test_being_away_earns_nothing():
    """
    b slept while a was served; it is lifted to a's level instead of being served alone for as long.
    """
    engine = Engine()
    engine.wait("b")
    engine.admit()
    engine.wait("a" * 12)
    engine.admit(10)
    engine.wait("bb")

    assert engine.counter("b") == engine.counter("a") == 110
    assert engine.admit() == "abab"


def test_into_an_empty_queue_a_client_is_lifted_to_the_last_that_left():
    """
    Alg. 2, lines 8-10: with no client waiting the level is that of the last client who did.
    """
    engine = Engine()
    engine.wait("a" * 3)
    engine.admit()
    engine.wait("b")

    assert engine.counter("b") == 30


def test_a_client_of_weight_two_is_charged_half():
    """
    Weighted VTC: gold gets two requests for each of the other.
    """
    engine = Engine(weights=Weights({"g": 2}))
    engine.wait("gggg" + "ss")

    assert engine.admit() == "gsggsg"


def test_a_full_table_forgets_a_client_only_when_its_return_would_lift_it_anyway():
    """
    Two places: the client that was served least goes; the level stays, so no client gains.
    """
    engine = Engine(max_clients=2)
    engine.wait("a")
    engine.admit()
    engine.wait("b")
    engine.admit()
    engine.wait("c")
    engine.admit()
    engine.wait("a")

    assert engine.counter("a") == 30


def test_charging_all_charges_who_was_forgotten_from_a_level_that_is_charged_too():
    """
    a was forgotten while it ran, and comes before b: five outputs each, a's on top of b's 20.
    """
    engine = Engine(max_clients=2)
    engine.wait("ab")
    engine.admit()
    engine.wait("bc")
    engine.scheduler.cancel(next(each for each in engine.scheduler if each.client == "c"))
    engine.scheduler.tick(5)

    engine.scheduler.sync_charges()

    assert (engine.counter("a"), engine.counter("b")) == (30, 20)

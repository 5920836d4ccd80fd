"""[40] Faults of engines and gateways: each request ends once, service stays within the bound or it shows.

The gap of two clients is that of the service of all engines, over any part of a run in which both have
requests waiting at all times. U is what is in flight at its longest. Where a fault puts a gateway's bound out
of force, the test says by what an operator sees that.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.service import TokenCost
from fairhit.dispatch import QueueRules
from tests.properties.engines import TEXT, World
from tests.properties.gateways import Gateways
from tests.properties.test_gateways import SKEWED, bound, drive, gap

LONGEST, QUANTUM, OVERDRAFT = 30, 400, 300
RULES = {
    "dlpm": QueueRules(quantum=QUANTUM),
    "fair": QueueRules(scheduler="fair", quantum=QUANTUM, overdraft=OVERDRAFT, cost=TokenCost()),
    "fcfs": QueueRules(scheduler="fcfs"),
}


def engine_bound(world: World, policy: str, engines: int) -> int:
    """2 (Q + U), under fair 2 (Q + B + 2 U + C); an engine that was lost began anew, with others in flight.

    `engines`: lives of engines in the run, each of which had its own requests in flight.
    """
    most = max(engine.peaks.in_flight for engine in world.dispatcher.engines.values())
    in_flight = engines * most * (world.prompt_len + 2 * LONGEST)
    if policy == "dlpm":
        return 2 * (QUANTUM + in_flight)
    return 2 * (QUANTUM + OVERDRAFT + 2 * in_flight + world.prompt_len)


class Faults:
    """A fleet in which one fault after the other happens, and two clients that always wait."""

    def __init__(
        self, slots: tuple[int, ...], policy: str, rng: random.Random, text_len: int = TEXT
    ) -> None:
        self.world = World(*slots, rules=RULES[policy], streams=True, text_len=text_len)
        self.rng = rng
        self.lives = len(slots)
        self.slow: dict[str, int] = {}  # engines by how many steps of others make one of theirs
        self.lying: dict[str, tuple[int, int]] = {}  # what engines report instead of the truth
        self.differences: list[int] = []

    def backlog(self) -> None:
        """Keep six requests of each client waiting; one's prompts share a prefix, the other's are long."""
        world = self.world
        for client, longest in (("a", LONGEST), ("b", LONGEST // 3)):
            while world.dispatcher.ledger.waiting(client) < 6:
                topic = self.rng.randrange(3) if client == "a" else world.number
                world.ask(client, output_len=self.rng.randint(1, longest), topic=topic)

    def step(self, number: int) -> None:
        self.backlog()
        for name in self.world.engines:
            if self.world.dispatcher.engines[name].up and number % self.slow.get(name, 1) == 0:
                self.world.step(name)
                if self.rng.random() < 0.3:
                    self.report(name)
        self.world.check()
        self.differences.append(self.world.served["a"] - self.world.served["b"])

    def report(self, name: str) -> None:
        if name in self.lying:
            running, waiting = self.lying[name]
            self.world.dispatcher.observed(name, running=running, waiting=waiting)
        else:
            self.world.report(name)

    # -- faults

    def dies(self, name: str) -> None:
        """It dies with requests sent and running, unless it is the last, and comes back later."""
        if sum(engine.up for engine in self.world.dispatcher.engines.values()) > 1:
            self.world.down(name)

    def returns(self, name: str) -> None:
        """It is back, with an empty cache."""
        if not self.world.dispatcher.engines[name].up:
            self.lives += 1
            self.world.up(name)

    def forgets(self, name: str) -> None:
        """Its cache is emptied and no event says so: it computes what it was thought to have."""
        self.world.engines[name].cache.clear()

    def is_slow(self, name: str) -> None:
        self.slow[name] = self.rng.choice([1, 5, 20])

    def lies(self, name: str) -> None:
        """It reports an empty queue, a long one, or the truth."""
        self.lying.pop(name, None)
        said = self.rng.choice([(0, 0), (1, 50), None])
        if said is not None:
            self.lying[name] = said

    def is_blind(self, name: str) -> None:
        self.world.dispatcher.unobserved(name, "it does not answer")


KINDS: dict[str, Callable[[Faults, str], None]] = {
    "dies": Faults.dies,
    "returns": Faults.returns,
    "forgets": Faults.forgets,
    "slow": Faults.is_slow,
    "lies": Faults.lies,
    "blind": Faults.is_blind,
}


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    policy=st.sampled_from(["dlpm", "fair"]),
    kinds=st.sets(st.sampled_from(sorted(KINDS))),
    text_len=st.sampled_from([TEXT, 2 * TEXT]),
)
def test_clients_that_wait_stay_within_the_bound_whatever_engines_do(
    seed: int, slots: tuple[int, ...], policy: str, kinds: set[str], text_len: int
) -> None:
    """Prompts of twice the text share enough with others to be held for an engine."""
    rng = random.Random(seed)
    fleet = Faults(slots, policy, rng, text_len)
    for number in range(300):
        if kinds and rng.random() < 0.05:
            KINDS[rng.choice(sorted(kinds))](fleet, rng.choice(list(fleet.world.engines)))
        fleet.step(number)
    seen = max(fleet.differences) - min(fleet.differences)

    assert seen <= engine_bound(fleet.world, policy, fleet.lives)
    world = fleet.world
    for name in world.engines:
        world.up(name)
    world.finish(rng)
    assert set(world.ends) == set(world.outputs)
    assert set(world.ends.values()) == {1}


def test_in_order_of_arrival_the_same_clients_leave_the_bound_without_any_fault() -> None:
    """Or the bound would say nothing."""
    fleet = Faults((3, 2, 4), "fcfs", random.Random(0))
    for number in range(600):
        fleet.step(number)

    assert max(fleet.differences) - min(fleet.differences) > engine_bound(fleet.world, "dlpm", 3)


@pytest.mark.parametrize("policy", ["dlpm", "fair"])
def test_what_an_engine_lost_was_not_served_is_not_paid(policy: str) -> None:
    """Requests that an engine had not begun are answered by another, and charged there only."""
    world = World(1, 1, rules=RULES[policy], streams=True)
    tickets = [world.ask("a", output_len=3, topic=number) for number in range(8)]
    assert {ticket.worker for ticket in tickets} >= {"w0", "w1"}
    world.down("w0")
    world.finish(random.Random(0))

    assert world.ends == Counter(tickets)
    charged = world.dispatcher.ledger.account("a").service
    assert charged.extend_len + 2 * charged.output_len == world.served["a"]


def test_an_engine_that_returns_with_an_empty_cache_is_not_taken_to_hold_what_it_held() -> None:
    world = World(1, rules=RULES["fair"], streams=True)
    world.ask("a", output_len=1, topic=0)
    world.finish(random.Random(0))
    assert world.ask("a", output_len=1, topic=0).matched_len > 0
    world.down("w0")
    world.up("w0")

    assert world.ask("a", output_len=1, topic=0).matched_len == 0


# -- gateways


def faulty(kind: str = "fair") -> Gateways:
    policy = {"policy": kind, "overdraft": OVERDRAFT} if kind == "fair" else {"policy": kind}
    return Gateways(
        count=2, engines=2, slots=4, quantum=QUANTUM, weights={"a": 4, "b": 1}, period=5, **policy
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["dlpm", "fair"])
def test_the_other_gateways_accounts_are_right_after_one_has_died(kind: str) -> None:
    """Its clients come to the one that is left, and are charged what the dead one reported."""
    world = faulty(kind)
    before = drive(world, {"a": [0, 1], "b": [1]}, steps=1000, seed=0)
    world.kill(0)
    after = drive(world, {"a": [1], "b": [1]}, steps=2000, seed=1)

    assert gap(before + after) <= bound(world)
    assert world.idle < 0.01 * 3000 * 8


@pytest.mark.parametrize("kind", ["dlpm", "fair"])
def test_a_partition_makes_each_gateway_fair_by_itself_and_no_longer_than_it_lasts(
    kind: str,
) -> None:
    """While it lasts, 4 : 1 is 1 : 1, as `fairhit_sharing_up` 0 says; no engine idles."""
    world = faulty(kind)
    drive(world, SKEWED, steps=500, seed=0)
    idle, early = world.idle, Counter(world.served)
    world.cut_off.add(0)
    drive(world, SKEWED, steps=1000, seed=1)
    apart = world.served - early
    assert 0.7 < apart["a"] / apart["b"] < 1.4
    world.cut_off.clear()
    healed = drive(world, SKEWED, steps=2000, seed=2)

    assert gap(healed) <= bound(world)
    assert world.idle - idle < 0.01 * 3000 * 8

"""An engine with the plug-in beside a stock one, at different speeds: all clients get the same of both."""

import random
from collections import Counter

import pytest

from fairhit.core.service import Weights
from fairhit.dispatch import QueueRules, TicketState
from tests.properties.engines import World

PLUG_IN, STOCK = "w0", "w1"
CALLERS = {"flood": 42, "light": 12}  # each asks again as soon as it is answered
SLOTS, STEPS, WARM = 4, 4_000, 1_000


class Mixed:
    """Both engines, at speeds of their own in steps of theirs to one of ours."""

    def __init__(self, speeds: tuple[float, float], weights: dict[str, int]) -> None:
        self.rng = random.Random(0)
        self.weights = weights
        self.world = World(SLOTS, SLOTS, rules=QueueRules(weights=Weights(weights)), streams=True)
        self.world.dispatcher.change(max_in_flight=10**6, weights=Weights(weights))
        self.speeds = dict(zip((PLUG_IN, STOCK), speeds, strict=True))
        self.due = {PLUG_IN: 0.0, STOCK: 0.0}
        self.by_plug_in: Counter[str] = Counter()  # what that one served
        self.asked = [self.ask(client) for client, number in CALLERS.items() for _ in range(number)]

    def ask(self, client: str):
        return self.world.ask(client, output_len=self.rng.randint(8, 24), topic=1)

    def step(self, name: str) -> None:
        """The engine with the plug-in takes next the client that it has served least, by weight."""
        engine, before = self.world.engines[name], Counter(self.world.served)
        if name == PLUG_IN:
            engine.queue.sort(key=lambda each: self.received(each.ticket.request.client))
        self.world.step(name)
        if name == PLUG_IN:
            self.by_plug_in += self.world.served - before

    def received(self, client: str) -> float:
        return self.by_plug_in[client] / self.weights.get(client, 1)

    def run(self) -> float:
        """Return how much more service the flood received than the light client."""
        before: Counter[str] = Counter()
        for step in range(STEPS):
            if step == WARM:
                before = Counter(self.world.served)
            for name, speed in self.speeds.items():
                self.due[name] += speed
                while self.due[name] >= 1:
                    self.due[name] -= 1
                    self.step(name)
            if step % 5 == 0:
                for name in self.speeds:
                    self.world.report(name)
            self.asked = [
                self.ask(each.request.client) if each.state is TicketState.ENDED else each
                for each in self.asked
            ]
        served = self.world.served - before
        return served["flood"] / served["light"]


@pytest.mark.parametrize("speeds", [(1, 1), (1, 0.5), (1, 0.25), (0.5, 1), (0.25, 1)])
def test_a_flood_and_a_light_client_get_the_same_of_both_however_fast_either_is(speeds):
    assert 0.8 <= Mixed(speeds, {}).run() <= 1.25


@pytest.mark.parametrize("speeds", [(1, 1), (1, 0.5), (1, 0.25)])
def test_weights_hold_however_fast_either_is(speeds):
    assert 1.6 <= Mixed(speeds, {"flood": 2, "light": 1}).run() <= 2.4

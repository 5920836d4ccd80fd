"""Whose adapter is not to have a slot of SGLang's now waits where no look goes, and is not forgotten."""

import pytest
from tests.unit.engines.sglang.sglang_loop import Engine, clients

from fairhit.engines.skipped_requests import RETRIES_PER_PASS

WAITING = 2 * RETRIES_PER_PASS


@pytest.fixture
def engine() -> Engine:
    """Two slots, whose holders are in the middle of their turns; others want each an adapter of its own."""
    made = Engine(quantum=10_000, room=1000, slots=2, tenure_len=100)
    for holder in ("a", "b"):
        made.send(holder, 1, lora_id=holder)
    made.look()
    for number in range(WAITING):
        made.send(f"{number}", 2, number, lora_id=f"{number}")
    made.look()
    return made


def test_whose_turn_it_is_not_is_not_even_proposed(engine):
    """So it costs the policy nothing, however many they are."""
    proposed, propose = [], engine.fair.propose

    def noting():
        proposed.append(propose())
        return proposed[-1]

    engine.fair.propose = noting
    for _ in range(10):
        engine.look()

    assert proposed == [None] * 10
    assert len(engine.queue) == WAITING


def test_when_their_turns_come_all_are_served(engine):
    served = set()
    for _ in range(WAITING + 2):
        engine.end(*engine.batch)
        served |= {req.client for req in engine.look()}

    assert served == {f"{number}" for number in range(WAITING)}


def test_who_was_passed_over_though_its_adapter_is_pinned_is_tried_again(engine):
    """SGLang had no place for it for another moment; the turns of the others are nothing to it."""
    engine.pinned.add("pinned")
    engine.max_loras += 1
    engine.send("rich", 3, lora_id="pinned")
    engine.look(skip=lambda req: req.lora_id == "pinned")

    looks = [clients(engine.look()) for _ in range(1 + WAITING // RETRIES_PER_PASS)]

    assert "rich" in looks

"""Requests of an adapter barred by the slot rotation are not tried in a pass, and are served in the end."""

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
    made.run_pass()
    for number in range(WAITING):
        made.send(f"{number}", 2, number, lora_id=f"{number}")
    made.run_pass()
    return made


def test_whose_turn_it_is_not_is_not_even_proposed(engine):
    """Barred requests cost the policy nothing, however many there are."""
    proposed, propose = [], engine.fair.propose

    def noting():
        proposed.append(propose())
        return proposed[-1]

    engine.fair.propose = noting
    for _ in range(10):
        engine.run_pass()

    assert proposed == [None] * 10
    assert len(engine.queue) == WAITING


def test_when_their_turns_come_all_are_served(engine):
    served = set()
    for _ in range(WAITING + 2):
        engine.end(*engine.batch)
        served |= {req.client for req in engine.run_pass()}

    assert served == {f"{number}" for number in range(WAITING)}


def test_who_was_passed_over_though_its_adapter_is_pinned_is_tried_again(engine):
    """SGLang had no place for it for another moment; the turns of the others are nothing to it."""
    engine.pinned.add("pinned")
    engine.max_loras += 1
    engine.send("rich", 3, lora_id="pinned")
    engine.run_pass(skip=lambda req: req.lora_id == "pinned")

    passes = [clients(engine.run_pass()) for _ in range(1 + WAITING // RETRIES_PER_PASS)]

    assert "rich" in passes

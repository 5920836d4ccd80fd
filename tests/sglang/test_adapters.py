"""LoRA adapters on SGLang's real scheduler and LoRA manager: a full table of slots freezes nobody."""

import random

import pytest

from fairhit.local.demo_model import make_adapter
from tests.sglang.stepped import Asked, Batch, admissions, collect, start

NAMES = ("a", "b", "c")
SLOTS, RUNNING = 2, 8
FLOOD = 40  # requests each for two adapters, which hold both slots without a pause
WAITING, STEP = 30, 6  # requests for a third adapter, all at once
TURN = 100
FLAGS = (
    "--enable-lora", "--lora-backend", "torch_native", "--max-loras-per-batch", str(SLOTS),
    "--max-total-tokens", "4000", "--max-running-requests", str(RUNNING),
)  # fmt: skip


def script() -> list[Asked]:
    """Return requests without shared prefixes; the flood's end at different times."""
    rng = random.Random(3)

    def asked(step: int, adapter: str, number: int, outputs: int) -> Asked:
        prompt = rng.choices(range(10, 2000), k=20)
        return Asked(step, f"{adapter}{number}", adapter, prompt, outputs, adapter)

    flood = [
        asked(number // 4, adapter, number, rng.choice((4, 9, 15)))
        for adapter in "ab"
        for number in range(FLOOD)
    ]
    return flood + [asked(STEP, "c", number, 4) for number in range(WAITING)]


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> dict[int, list[Batch]]:
    """Return the batches by tenure at the LoRA slots; 0: no rotation."""
    folder = tmp_path_factory.mktemp("adapters")
    paths = [f"{name}={make_adapter(folder, name)}" for name in NAMES]
    environment = {"FAIRHIT_QUANTUM": "50"}
    started = {
        turn: start(
            folder / str(turn),
            script(),
            "dlpm",
            *FLAGS,
            "--lora-paths",
            *paths,
            environment={**environment, "FAIRHIT_ADAPTER_TURN": str(turn)},
        )
        for turn in (0, TURN)
    }
    return dict(zip(started, collect(*started.values()), strict=True))


def test_no_batch_has_more_adapters_than_slots_and_all_are_served(batches):
    for ran in batches.values():
        assert sorted(admissions(ran)) == sorted(asked.name for asked in script())
        assert max(len({name[0] for name in batch.names}) for batch in ran) == SLOTS


def first_of_c(batches: list[Batch]) -> int:
    """Return how many requests were admitted before a request."""
    return next(at for at, name in enumerate(admissions(batches)) if name[0] == "c")


def test_who_has_a_slot_goes_on_while_thirty_wait_for_one(batches):
    """Requests without a slot have the most credit; without being skipped each pass would propose them."""
    before = [name[0] for name in admissions(batches[0])[: first_of_c(batches[0])]]

    assert min(before.count("a"), before.count("b")) > FLOOD / 2


def test_with_turns_the_third_adapter_has_a_slot_long_before(batches):
    assert first_of_c(batches[TURN]) < first_of_c(batches[0]) / 2

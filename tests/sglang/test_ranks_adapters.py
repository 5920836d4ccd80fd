"""Ranks with LoRA adapters: whose turn it is at the slots, too, is the same on all of them."""

from fairhit.local.demo_model import make_adapter
from tests.sglang.stepped import admissions, run_on_ranks
from tests.sglang.test_adapters import FLAGS, NAMES, TURN, script

RANKS = 2


def test_ranks_with_other_hashes_clocks_and_speeds_take_the_same_turns(tmp_path):
    """Two floods on two slots and thirty requests for a third adapter, which is the client, too."""
    paths = [f"{name}={make_adapter(tmp_path, name)}" for name in NAMES]
    environment = {
        "FAIRHIT_QUANTUM": "50", "FAIRHIT_ADAPTER_TURN": str(TURN), "FAIRHIT_LORA_CLIENTS": "1",
    }  # fmt: skip

    flags = (*FLAGS, "--lora-paths", *paths)
    ran = run_on_ranks(tmp_path, RANKS, script(), *flags, environment=environment)

    order = admissions(ran)
    assert sorted(order) == sorted(asked.name for asked in script())
    # It is taken in while both floods last: so somebody gave way, more than once.
    third = [place for place, name in enumerate(order) if name.startswith("c")]
    assert (
        third[0]
        < len(order) // 2
        < len(order) - 10
        < max(place for place, name in enumerate(order) if name.startswith(("a", "b")))
    )

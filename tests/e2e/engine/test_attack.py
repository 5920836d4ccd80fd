"""A real vLLM: a tenant with a long cached prefix, under a policy that charges tokens and under `fair`."""

import pytest
from benchmarks.attack_vllm import CHAT, LONG, Load, Pass, run_apart, share_by_counts

PREFIX = 16_000


def row_of(policy: str) -> dict:
    return run_apart(Load(policy, LONG, PREFIX, seed=1, warm_up_s=10.0, seconds=6.0))


def test_shares_by_counts_are_those_of_the_prices_that_made_the_passes():
    """2 ms a pass, 10 us a prompt token, 1 ms an output of chat, 9 ms one of the other."""
    counts = [(500, 2, 0, 2), (0, 4, 1, 2), (100, 1, 0, 7), (0, 4, 0, 1), (200, 0, 3, 3)]
    passes = [
        Pass(0.002 + 1e-5 * (a + c) + 0.001 * b + 0.009 * d, {CHAT: a, LONG: c}, {CHAT: b, LONG: d})
        for a, b, c, d in counts
    ]
    chat = sum(0.002 * (a + b) / (a + b + c + d) + 1e-5 * a + 0.001 * b for a, b, c, d in counts)

    found = share_by_counts(passes, LONG)

    assert found == pytest.approx(chat / sum(each.seconds for each in passes), rel=1e-6)


@pytest.mark.e2e
def test_dlpm_lets_the_long_prefix_take_the_engine_and_fair_does_not():
    """Under dlpm the books say half and half of the tokens; under fair charge and engine time agree."""
    dlpm, fair = row_of("dlpm"), row_of("fair")

    assert dlpm["rival_cached_tokens_per_s"] > 0 and fair["rival_cached_tokens_per_s"] > 0
    assert 0.4 < dlpm["chat_share_of_charge"] < 0.6
    assert dlpm["chat_share_of_seconds"] < 0.25
    assert 0.35 < fair["chat_share_of_seconds"] < 0.65
    assert abs(fair["chat_share_of_seconds"] - fair["chat_share_of_charge"]) < 0.1
    for row in (dlpm, fair):
        assert abs(row["chat_share_of_seconds"] - row["chat_share_by_counts"]) < 0.15

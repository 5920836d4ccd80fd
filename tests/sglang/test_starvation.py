"""The case of SGLang's issue 31954 on its real scheduler: who has nothing cached waits behind who has.

Under lpm the few requests that match nothing are overtaken by all that match, for as long as these come.
Here one client's hot requests come faster than they are served, and among them ask, each with a long
prompt that nobody has asked before: another client, and the same one.
"""

import random

import pytest

from tests.sglang.stepped import Asked, Batch, admissions, collect, start

HOT = 120  # requests, two at each step
PREFIX = list(range(10, 410))
OWN = 4  # tokens that each hot request has beyond the prefix
COLD = 200  # tokens of a prompt that nobody has
COLD_STEP, OTHER_STEPS = 8, (10, 20, 30, 40)
OUTPUTS, SLOTS = 4, 4
QUANTUM, MAX_OVERTAKE = 60, 48


def script() -> list[Asked]:
    rng = random.Random(1)
    hot = [[*PREFIX, *rng.choices(range(600, 900), k=OWN)] for _ in range(HOT)]
    cold = [rng.choices(range(1000, 2000), k=COLD) for _ in range(1 + len(OTHER_STEPS))]
    return [
        *(Asked(each // 2, f"hot{each}", "same", hot[each], OUTPUTS) for each in range(HOT)),
        Asked(COLD_STEP, "cold", "same", cold.pop(), OUTPUTS),
        *(Asked(step, f"other{step}", "other", cold.pop(), OUTPUTS) for step in OTHER_STEPS),
    ]


FLAGS = ("--max-total-tokens", "4000", "--max-running-requests", str(SLOTS))
QUANTUM_SET = {"FAIRHIT_QUANTUM": str(QUANTUM)}
LANES = {
    "lpm": ("lpm", {}),
    "dlpm": ("dlpm", QUANTUM_SET),
    "ageing": ("dlpm", {**QUANTUM_SET, "FAIRHIT_MAX_OVERTAKE": str(MAX_OVERTAKE)}),
    "fair": ("fair", {**QUANTUM_SET, "FAIRHIT_COST": "linear:1,2"}),
}


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> dict[str, list[Batch]]:
    """Return the batches of each lane, for equal requests that arrive at equal steps."""
    folder = tmp_path_factory.mktemp("starvation")
    started = {
        lane: start(folder / lane, script(), policy, *FLAGS, environment=environment)
        for lane, (policy, environment) in LANES.items()
    }
    ran = dict(zip(started, collect(*started.values()), strict=True))
    for each in ran.values():
        assert sorted(admissions(each)) == sorted(asked.name for asked in script())
    return ran


def hot_before(batches: list[Batch], name: str, step: int, first: int) -> int:
    """Return how many hot requests, `first` and younger, were admitted from that step on before `name`."""
    # At each of these steps something ran, so they are places in what ran, too.
    gone = len(admissions(batches[:step]))
    order = admissions(batches)
    younger = {f"hot{each}" for each in range(first, HOT)}
    return len(younger & set(order[gone : order.index(name)]))


def test_under_lpm_who_matches_nothing_comes_last(batches):
    """Or the others would prove nothing."""
    unmatched = {"cold", *(f"other{step}" for step in OTHER_STEPS)}

    assert set(admissions(batches["lpm"])[-len(unmatched) :]) == unmatched


@pytest.mark.parametrize("lane", ["dlpm", "ageing"])
def test_another_client_is_not_starved(batches, lane):
    """While both wait the flood spends what it has and one refill; each that passes costs OWN or more."""
    for step in OTHER_STEPS:
        passed = hot_before(batches[lane], f"other{step}", step, 0)
        assert passed <= 2 * QUANTUM / OWN, (step, passed)


def test_under_fair_another_client_is_not_starved_by_hits_on_credit(batches):
    """
    The flood spends what it has, one refill, and its overdraft of a quantum; of the requests that run their
    outputs may not be charged yet, or be refunded. Before the other client's next request it may spend as
    much again as that client owes for the one before, which was admitted on credit of a quantum at most.
    """
    each, owed = OWN + 2 * OUTPUTS, 0
    for step in OTHER_STEPS:
        passed = hot_before(batches["fair"], f"other{step}", step, 0)
        assert passed <= (owed + 3 * QUANTUM) / each + 2 * SLOTS, (step, passed)
        owed = COLD + 2 * OUTPUTS


def test_without_ageing_a_client_starves_itself(batches):
    """Fairness among clients has no say in that: this is Algorithm 1, which the setting repairs."""
    order = admissions(batches["dlpm"])

    assert max(order.index(f"hot{each}") for each in range(HOT)) < order.index("cold")


def test_with_max_overtake_a_client_does_not_starve_itself(batches):
    """Later requests that overtake take their computed tokens off the bound; the last may exceed it."""
    first_younger = 2 * (COLD_STEP + 1)

    passed = hot_before(batches["ageing"], "cold", COLD_STEP, first_younger)

    assert 0 < passed <= MAX_OVERTAKE / OWN + 1

"""Expectations of SGLang's own tests of its scheduler, for stock SGLang and the plug-in side by side.

Its packages have no tests of this version, so their behaviours are written anew: the table is in
docs/reference/compatibility.md. One client, whose prompts share nothing, is due in the order of arrival:
then every batch must be the same. Where the order is ours to choose, each request must end the same.
"""

import random

import pytest

from tests.sglang.peer_runs import Found, Order, Script, run
from tests.sglang.stepped import Asked

STOCK, OURS = "fcfs", ("dlpm", "vtc", "drr", "fair")
CHUNK, ROWS, MEMORY, QUEUE = 128, 4, 1500, 12
FLAGS = (
    "--chunked-prefill-size", str(CHUNK), "--max-running-requests", str(ROWS),
    "--max-total-tokens", str(MEMORY), "--max-queued-requests", str(QUEUE),
    "--max-prefill-tokens", "256", "--schedule-conservativeness", "0.1", "--enable-streaming-session",
)  # fmt: skip


def prompt(seed: int, length: int) -> list[int]:
    """No two begin alike."""
    return [10 + seed, *random.Random(seed).choices(range(500, 2000), k=length - 1)]


def ask(step: int, name: str, length: int, outputs: int, *, session: str | None = None) -> Asked:
    seed = sum(map(ord, name)) % 400
    return Asked(step, name, "one client", prompt(seed, length), outputs, session)


# Where nothing is for the policy to choose, all that happens is the same.
ALIKE: dict[str, Script] = {
    "prompts in chunks": [ask(0, "long", 500, 4), ask(1, "b", 20, 6), ask(2, "also long", 300, 3)],
    "more than there are rows": [ask(0, f"r{n}", 10 + n, 3 + n % 4) for n in range(QUEUE)],
    "more than --max-prefill-tokens": [ask(0, f"p{n}", 100, 2) for n in range(6)],
    "a full queue": [ask(0, f"q{n}", 10, 8) for n in range(QUEUE + ROWS + 6)],
    "an abort in the queue": [
        *(ask(0, f"w{n}", 30, 12) for n in range(7)), Order(3, "abort", "w5"),
    ],
    "an abort while it runs": [ask(0, "x", 30, 60), ask(0, "y", 30, 20), Order(6, "abort", "x")],
    "an abort amid chunks": [
        ask(0, "chunked", 900, 4), ask(1, "next", 40, 4), Order(3, "abort", "chunked"),
    ],
    "an abort by the beginning of names": [
        *(ask(0, f"same-{n}", 20, 30) for n in range(6)), ask(0, "other", 25, 5),
        Order(4, "abort", "same-"),
    ],
    "an abort of all": [*(ask(0, f"all{n}", 40, 50) for n in range(8)), Order(5, "abort all")],
    "an abort of nobody": [ask(0, "only", 20, 5), Order(2, "abort", "stranger")],
    "an abort that comes too late": [ask(0, "early", 20, 2), Order(12, "abort", "early")],
    "a pause in place": [
        *(ask(0, f"pause{n}", 40, 20) for n in range(6)), Order(5, "pause", "in_place"),
        ask(7, "meanwhile", 50, 4), Order(12, "continue"),
    ],
    "an abort in a pause": [
        *(ask(0, f"halt{n}", 40, 20) for n in range(6)), Order(5, "pause", "in_place"),
        Order(7, "abort", "halt1"), Order(8, "abort", "halt5"), Order(12, "continue"),
    ],
    "a flush while requests run": [ask(0, "busy", 40, 12), Order(4, "flush"), ask(30, "after", 40, 4)],
    "a flush while none runs": [
        ask(0, "first", 60, 3), Order(20, "flush"), Asked(25, "again", "c", prompt(1, 60), 3),
    ],
    "a prompt longer than memory": [ask(0, "too long", MEMORY + 10, 3), ask(0, "fits", 40, 3)],
    "a prefix that is cached": [
        Asked(0, "fills", "c", prompt(7, 200), 2), Asked(15, "hits", "c", prompt(7, 200), 2),
        Asked(30, "longer", "c", [*prompt(7, 200), *prompt(8, 50)], 2),
    ],
    "turns of a session": [
        Order(0, "open", "s"), ask(1, "turn1", 40, 4, session="s"),
        ask(20, "turn2", 20, 4, session="s"), ask(40, "turn3", 20, 4, session="s"),
        Order(60, "close", "s"),
    ],
    "a session that is not open": [ask(0, "lost", 40, 4, session="none"), ask(1, "found", 30, 3)],
    "sessions in all rows": [
        *(Order(0, "open", f"s{n}") for n in range(ROWS + 2)),
        *(ask(1 + n, f"s{n} turn", 20, 2, session=f"s{n}") for n in range(ROWS + 2)),
        ask(40, "plain", 20, 2), Order(80, "close", "s0"), Order(81, "close", "s1"),
        Order(82, "close", "s2"), *(Order(120, "close", f"s{n}") for n in range(3, ROWS + 2)),
    ],
}  # fmt: skip
# Where the policy chooses, of several that wait or run, each request ends the same all the same.
ENDS_ALIKE: dict[str, Script] = {
    "memory that runs out": [ask(n, f"grows{n}", 60, 400) for n in range(ROWS)],
    "a pause that retracts all": [
        *(ask(0, f"back{n}", 40 + n, 20) for n in range(6)), ask(0, "in chunks", 400, 4),
        Order(8, "pause", "retract"), Order(12, "continue"),
    ],
    "a flush in such a pause": [
        *(ask(0, f"flushed{n}", 40 + n, 20) for n in range(6)), Order(8, "pause", "retract"),
        Order(10, "flush"), Order(12, "continue"),
    ],
    "an abort of one that was retracted": [
        *(ask(0, f"gone{n}", 40 + n, 30) for n in range(4)), Order(8, "pause", "retract"),
        Order(10, "abort", "gone2"), Order(12, "continue"),
    ],
    "prefixes that are shared": [
        Asked(n // 3, f"share{n}", f"client {n % 3}", [*prompt(n % 2, 80), 1900 + n, 3], 6)
        for n in range(15)
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict[str, Found]]:
    folder = tmp_path_factory.mktemp("peers")
    scripts = {**ALIKE, **ENDS_ALIKE}
    return {policy: run(folder / policy, policy, scripts, *FLAGS) for policy in (STOCK, *OURS)}


@pytest.mark.parametrize("policy", OURS)
@pytest.mark.parametrize("behaviour", ALIKE)
def test_all_that_happens_is_the_same(found, policy, behaviour):
    assert found[policy][behaviour] == found[STOCK][behaviour]


@pytest.mark.parametrize("policy", OURS)
@pytest.mark.parametrize("behaviour", ENDS_ALIKE)
def test_each_request_ends_the_same(found, policy, behaviour):
    ours, stock = (each[behaviour] for each in (found[policy], found[STOCK]))

    assert {name: (end.reason, end.outputs) for name, end in ours.ends.items()} == {
        name: (end.reason, end.outputs) for name, end in stock.ends.items()
    }


def test_the_scripts_do_what_they_are_called(found):
    """Or that they come to the same would say little."""
    stock = found[STOCK]

    def reasons(behaviour: str) -> list[str]:
        return [end.reason for end in stock[behaviour].ends.values()]

    def prefills(behaviour: str) -> list[str]:
        return [
            name for is_prefill, names in stock[behaviour].batches if is_prefill for name in names
        ]

    assert prefills("prompts in chunks").count("long") > 3
    assert 0 < reasons("a full queue").count("abort") < QUEUE
    for behaviour in ALIKE:
        if behaviour.startswith("an abort of all"):
            assert set(reasons(behaviour)) == {"abort"}
        elif behaviour.startswith("an abort"):
            assert "length" in reasons(behaviour), behaviour
    assert stock["an abort by the beginning of names"].ends["other"].reason == "length"
    assert stock["a flush while requests run"].flushed == [False]
    assert stock["a flush while none runs"].flushed == [True]
    assert stock["a flush in such a pause"].flushed == [True]
    assert stock["a prefix that is cached"].ends["hits"].cached == 199
    assert "abort" in reasons("a session that is not open")
    assert stock["sessions in all rows"].steps["plain"] > 80
    for behaviour in ("memory that runs out", "a pause that retracts all"):
        again = prefills(behaviour)
        assert len(again) > len(set(again)), behaviour


def test_behind_sessions_in_all_rows_nobody_is_admitted_until_one_is_closed(found):
    """SGLang's own limit: each open session keeps its row, under any policy."""
    for policy in (STOCK, *OURS):
        assert found[policy]["sessions in all rows"].steps["plain"] > 80, policy

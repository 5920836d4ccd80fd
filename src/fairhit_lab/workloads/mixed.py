"""Four clients with four programs: two chats, trees of thought, an LLM as a judge (DLPM, Fig. 12)."""

from collections.abc import Iterator
from functools import partial
from random import Random

from fairhit_lab.traces.parameters import Positive, Positives
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.chat import conversation, sglang_lengths
from fairhit_lab.workloads.judge import judgement
from fairhit_lab.workloads.programs import Builder, steady
from fairhit_lab.workloads.tree_of_thoughts import tree
from fairhit_lab.workloads.workload import preset

CHATTERS = [
    partial(
        conversation, turns=4, system=0, think=0, lengths=partial(sglang_lengths, answers=answers)
    )
    for answers in ("short", "long")
]
BUILDERS: tuple[Builder, ...] = (
    *CHATTERS,
    partial(tree, branches=(2,), question=(59,), output=256, collapse=False),
    partial(judgement, branches=(6,), article=2650, preface=(0,), output=256, merge=True),
)


def mixed(
    rng: Random,
    *,
    rates: Positives = (0.2, 0.1, 0.02, 0.05),
    duration: Positive = 600,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Programs a second: chats with short and with long answers, trees of fan-out 2, six-fold judging."""

    def build(number: int, program: int, start_s: float, own: Random) -> list[TraceRow]:
        return list(BUILDERS[number](number, program, start_s, own))

    return steady(rng, build, clients=len(BUILDERS), rates=rates, duration=duration, cv=cv)


MIXED = {"mixed": preset(mixed, "two chats, a tree of thoughts and a judge", "DLPM Fig. 12")}

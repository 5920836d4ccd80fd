"""Trees of thought: four levels, each fork generates, its children continue what it generated.

Lengths are those of SGLang's `tree_of_thought_deep` with Llama 3: template 62, question 59, 9 tokens
of chat template a turn, 40, 31 and 22 tokens of further instructions; with outputs of 256 a level's
prompts have 130, 435, 731 and 1,018 tokens.
"""

from collections.abc import Iterator
from functools import partial
from random import Random

from fairhit_lab.traces.parameters import (
    Count,
    Counts,
    Natural,
    Naturals,
    Positive,
    Positives,
    Switch,
    of,
)
from fairhit_lab.traces.rows import Piece, row
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.programs import steady
from fairhit_lab.workloads.workload import preset

TEMPLATE = 62
TURN = 9  # of the chat template, before each answer
# What follows the answer of the level above.
LEVELS = (("tot:plan", 0), ("tot:execute", 40), ("tot:reflect", 31), ("tot:answer", 22))


def tree(
    number: int,
    program: int,
    start_s: float,
    _: Random,
    *,
    branches: Counts,
    question: Counts,
    output: int,
    collapse: bool,
    preface: Naturals = (0,),
    label: str = "tot",
) -> list[TraceRow]:
    """The requests of one tree, parents first. A node's children start when it has finished."""
    client, width = f"c{number}", of(branches, number)
    name = f"{label}:{client}:p{program}"
    root: list[Piece] = [("tot:template", TEMPLATE)]
    if length := of(preface, number):
        root.append((f"{label}:{client}:preface", length))
    root.append((f"{name}:question", of(question, number)))
    made: list[TraceRow] = []
    above: list[tuple[str, list[Piece]]] = [("", root)]
    for depth, (instruction, length) in enumerate(LEVELS):
        level: list[tuple[str, list[Piece]]] = []
        for parent, context in above:
            prompt = [*context, (instruction, length + TURN)]
            for fork in range(width):
                place = f"{parent}.{fork}" if parent else str(fork)
                # At temperature 0 equal prompts give equal texts: then a level is one text.
                answer = [(f"{name}:level{depth}" if collapse else f"{name}:{place}:text", output)]
                made.append(
                    row(
                        f"{name}:{place}",
                        client=client,
                        at_s=start_s,
                        prompt=prompt,
                        output_len=output,
                        output=answer,
                        program=name,
                        after=(f"{name}:{parent}",) if parent else (),
                    )
                )
                level.append((place, prompt + answer))
        above = level
    return made


def tree_of_thoughts(
    rng: Random,
    *,
    clients: Count = 3,
    branches: Counts = (2,),
    question: Counts = (59,),
    preface: Naturals = (0,),
    rates: Positives = (0.02,),
    output: Count = 256,
    collapse: Switch = False,
    duration: Positive = 600,
    programs_each: Natural = 0,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Trees a second and client; with `programs_each` above 0 so many, whatever the duration.

    `preface` tokens of a client's own stand before each of its questions.
    """
    build = partial(
        tree,
        branches=branches, question=question, preface=preface, output=output, collapse=collapse,
    )  # fmt: skip
    return steady(
        rng, build,
        clients=clients, rates=rates, duration=duration, programs_each=programs_each, cv=cv,
    )  # fmt: skip


def tree_of_thoughts_many(
    rng: Random,
    *,
    clients: Count = 20,
    branches: Counts = (2,),
    rate: Positive = 0.1,
    output: Count = 256,
    duration: Positive = 600,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """A constant rate of trees, spread over however many clients."""
    rates = (rate / clients,)
    return tree_of_thoughts(
        rng,
        clients=clients,
        branches=branches,
        rates=rates,
        output=output,
        duration=duration,
        cv=cv,
    )


TREE_OF_THOUGHTS = {
    "tot": preset(
        tree_of_thoughts, "trees of thought, one fan-out and rate a client", "DLPM section 5"
    ),
    "tot-s1": preset(
        tree_of_thoughts,
        "client 0 grows trees of fan-out 4, the others of 2",
        "DLPM Fig. 1, 7 (S1)",
        branches=(4, 2),
    ),
    "tot-s2": preset(
        tree_of_thoughts,
        "client 0 asks questions ten times as long; fan-out 3",
        "DLPM Fig. 7 (S2), 9, 10a",
        branches=(3,),
        question=(590, 59),
    ),
    "tot-even": preset(
        tree_of_thoughts, "three equal clients; fan-out 3", "DLPM Fig. 10b", branches=(3,)
    ),
    "tot-many": preset(
        tree_of_thoughts_many, "a constant rate of trees over 5 to 50 clients", "DLPM Fig. 11"
    ),
}

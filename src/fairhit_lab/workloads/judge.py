"""An LLM as a judge: an article judged in several respects at once, then one call that merges.

Lengths are those of SGLang's `llm_judge`: 34 tokens of system prompt, 91 of question, two of verdict;
articles of 2,650 tokens give the prefix of 2,701 that the DLPM paper prints.
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

SYSTEM = 34
OPENING, DIMENSION = 17, 74  # of the 91 tokens of a question: the same in all, and its own
MERGE, VERDICT = 26, 2


def judgement(
    number: int,
    program: int,
    start_s: float,
    _: Random,
    *,
    branches: Counts,
    article: int,
    preface: Naturals,
    output: int,
    merge: bool,
    label: str = "judge",
) -> list[TraceRow]:
    """The requests of one article: its dimensions together, then the merge of their outputs."""
    client = f"c{number}"
    name = f"{label}:{client}:p{program}"
    shared: list[Piece] = [("judge:system", SYSTEM)]
    if length := of(preface, number):
        shared.append((f"{label}:{client}:preface", length))
    shared.append((f"{name}:article", article))
    made = [
        row(
            f"{name}:{n}",
            client=client,
            at_s=start_s,
            prompt=[*shared, ("judge:open", OPENING), (f"judge:dimension{n}", DIMENSION)],
            output_len=output,
            output=[(f"{name}:{n}:text", output)],
            program=name,
        )
        for n in range(of(branches, number))
    ]
    if merge:
        texts = [(f"{one.id}:text", output) for one in made]
        made.append(
            row(
                f"{name}:merge",
                client=client,
                at_s=start_s,
                prompt=[*shared, ("judge:merge", MERGE), *texts],
                output_len=VERDICT,
                program=name,
                after=tuple(one.id for one in made),
            )
        )
    return made


def judge(
    rng: Random,
    *,
    clients: Count = 3,
    branches: Counts = (6,),
    article: Count = 2650,
    preface: Naturals = (0,),
    rates: Positives = (0.05,),
    output: Count = 256,
    merge: Switch = True,
    duration: Positive = 600,
    programs_each: Natural = 0,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Articles a second and client; `preface` tokens of a client's own stand before each of its articles."""
    build = partial(
        judgement,
        branches=branches, article=article, preface=preface, output=output, merge=merge,
    )  # fmt: skip
    return steady(
        rng, build,
        clients=clients, rates=rates, duration=duration, programs_each=programs_each, cv=cv,
    )  # fmt: skip


JUDGE = {
    "judge": preset(judge, "articles judged in several respects, then merged", "DLPM section 5"),
    "judge-s1": preset(
        judge,
        "client 0 judges in 16 respects, the others in 2",
        "DLPM Fig. 7 (S1)",
        branches=(16, 2),
    ),
    "judge-s2": preset(
        judge, "client 0 puts 600 tokens before each article", "DLPM Fig. 7 (S2)", preface=(600, 0)
    ),
}

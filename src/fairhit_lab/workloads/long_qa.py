"""Questions about long documents, as LooGLE has them: one document, a dozen questions, short answers."""

from collections.abc import Iterator
from functools import partial
from random import Random

from fairhit_lab.traces.parameters import (
    Amount,
    Count,
    Counts,
    Natural,
    Positive,
    Positives,
    of,
)
from fairhit_lab.traces.rows import row
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.programs import steady
from fairhit_lab.workloads.workload import preset

BEFORE, AFTER = 14, 4  # the fixed words around document and question: 18 tokens
MEAN, SHORTEST, LONGEST = 21_400, 10_000, 34_000  # of the documents of LooGLE's sample
ANSWER_MEAN = 20  # exponential, capped at 35 as Preble does: 16.5 on average
ANSWER_CAP = 35


def document(
    number: int,
    program: int,
    start_s: float,
    rng: Random,
    *,
    mean: Counts,
    spread: float,
    questions: int,
    question: int,
    gap: float,
    label: str = "qa",
) -> list[TraceRow]:
    """The questions about one document: all at once, or `gap` seconds apart on average."""
    client, typical = f"c{number}", of(mean, number)
    name = f"{label}:{client}:d{program}"
    # A document of twice the mean is clipped at twice the bounds: two documents joined.
    scale = typical / MEAN
    length = round(rng.gauss(typical, spread * scale))
    length = min(max(length, round(SHORTEST * scale)), round(LONGEST * scale))
    made, at_s = [], start_s
    for n in range(questions):
        if gap and n:
            at_s += rng.expovariate(1 / gap)
        asked = max(1, round(rng.expovariate(1 / question)))
        prompt = [
            ("qa:please", BEFORE),
            (name, length),
            (f"{name}:q{n}", asked),
            ("qa:answer", AFTER),
        ]
        answer = min(1 + int(rng.expovariate(1 / ANSWER_MEAN)), ANSWER_CAP)
        made.append(
            row(
                f"{name}:{n}",
                client=client,
                at_s=at_s,
                prompt=prompt,
                output_len=answer,
                program=name,
            )
        )
    return made


def long_qa(
    rng: Random,
    *,
    clients: Count = 3,
    mean: Counts = (MEAN,),
    spread: Amount = 5_000,
    questions: Count = 12,
    question: Count = 22,
    gap: Amount = 0,
    rates: Positives = (0.02,),
    duration: Positive = 600,
    programs_each: Natural = 0,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Documents a second and client; length N(mean, spread), clipped to 10,000-34,000 in proportion."""
    build = partial(
        document, mean=mean, spread=spread, questions=questions, question=question, gap=gap
    )
    return steady(
        rng, build,
        clients=clients, rates=rates, duration=duration, programs_each=programs_each, cv=cv,
    )  # fmt: skip


LONG_QA = {
    "long-qa": preset(long_qa, "a dozen questions about each long document", "DLPM section 5"),
    "long-qa-s1": preset(
        long_qa,
        "client 0 sends four times as many documents",
        "DLPM Fig. 7 (S1)",
        rates=(0.08, 0.02),
    ),
    "long-qa-s2": preset(
        long_qa, "client 0's documents are twice as long", "DLPM Fig. 7 (S2)", mean=(2 * MEAN, MEAN)
    ),
}

"""Conversations: the prompt of each turn begins with all earlier turns and answers, which may be cached."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Annotated

from fairhit.settings.kinds import one_of
from fairhit_lab.traces import arrivals
from fairhit_lab.traces.parameters import (
    Amount,
    Count,
    Natural,
    Naturals,
    Positive,
    Positives,
    of,
)
from fairhit_lab.traces.rows import Piece, row
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.programs import programs, steady
from fairhit_lab.workloads.workload import preset

Answers = Annotated[str, one_of("short", "long")]
Lengths = Callable[[Random], tuple[int, int]]


def _lognormal(rng: Random, median: float, mean: float, most: int) -> int:
    """Draw a length with this median and, before it is clipped to 2..most, this mean."""
    sigma = math.sqrt(2 * math.log(mean / median))
    return min(max(round(rng.lognormvariate(math.log(median), sigma)), 2), most)


def arena_lengths(rng: Random, *, answer: int = 256) -> tuple[int, int]:
    """A question and its answer: median, mean and range of the VTC paper's Chatbot Arena trace.

    `answer` is the answers' mean, in tokens; their median and spread are in proportion.
    """
    return _lognormal(rng, 40, 136, 1021), _lognormal(rng, 211 * answer / 256, answer, 977)


def sglang_lengths(rng: Random, *, answers: str) -> tuple[int, int]:
    """A question and its answer as SGLang's `multi_turn_chat` draws them."""
    return rng.randint(256, 512), rng.randint(4, 8) if answers == "short" else rng.randint(256, 512)


def conversation(
    number: int,
    program: int,
    start_s: float,
    rng: Random,
    *,
    turns: int,
    system: int,
    think: float,
    lengths: Lengths,
    label: str = "chat",
) -> list[TraceRow]:
    """Turns one after another; the next comes `think` seconds later on average, or at the answer's end."""
    client = f"c{number}"
    name = f"{label}:{client}:p{program}"
    said: list[Piece] = [(f"{label}:system", system)] if system else []
    made: list[TraceRow] = []
    at_s = start_s
    for turn in range(turns):
        if turn and think:
            at_s += rng.expovariate(1 / think)
        asked, answered = lengths(rng)
        said = [*said, (f"{name}:{turn}:question", asked)]
        answer = [(f"{name}:{turn}:text", answered)]
        made.append(
            row(
                f"{name}:{turn}",
                client=client,
                at_s=at_s,
                prompt=said,
                output_len=answered,
                output=answer,
                program=name,
                after=(made[-1].id,) if made else (),
            )
        )
        said = said + answer
    return made


def _geometric(rng: Random, mean: float) -> int:
    """At least 1."""
    if mean <= 1:
        return 1
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))


def chat(
    rng: Random,
    *,
    clients: Count = 3,
    turns: Count = 4,
    system: Natural = 0,
    answers: Answers = "short",
    think: Amount = 0,
    rates: Positives = (0.1,),
    duration: Positive = 600,
    programs_each: Natural = 0,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Conversations a second and client, of exactly so many turns (SGLang's `multi_turn_chat`)."""
    build = partial(
        conversation,
        turns=turns, system=system, think=think, lengths=partial(sglang_lengths, answers=answers),
    )  # fmt: skip
    return steady(
        rng, build,
        clients=clients, rates=rates, duration=duration, programs_each=programs_each, cv=cv,
    )  # fmt: skip


def arena(
    rng: Random,
    *,
    clients: Count = 4,
    turns: Positive = 1.2,
    system: Natural = 16,
    think: Amount = 20,
    rates: Positives = (0.3,),
    surging: Naturals = (),
    surge: Positive = 5,
    surge_until: Positive = 0.5,
    answer: Count = 256,
    duration: Positive = 600,
    cv: Positive = 1,
) -> Iterator[TraceRow]:
    """Short chats; `turns` is a mean. The `surging` clients send `surge` times as much in the first part."""

    def build(number: int, program: int, start_s: float, own: Random) -> list[TraceRow]:
        count = _geometric(own, turns)
        return conversation(
            number,
            program,
            start_s,
            own,
            turns=count,
            system=system,
            think=think,
            lengths=partial(arena_lengths, answer=answer),
            label="arena",
        )

    def times(number: int, own: Random) -> Iterator[float]:
        per_s = of(rates, number)
        turn_s = min(surge_until, 1) * duration if number in surging else 0
        for part_s, start_s, rate in (
            (turn_s, 0, surge * per_s),
            (duration - turn_s, turn_s, per_s),
        ):
            due = arrivals.until(arrivals.gamma(own, per_s=rate, cv=cv), part_s)
            yield from (start_s + at_s for at_s in due)

    return programs(rng, build, clients=clients, times=times)


CHAT = {
    "chat": preset(chat, "four-turn conversations, short or long answers", "DLPM section 5"),
    "arena": preset(arena, "short chats with the lengths of Chatbot Arena", "DLPM section 5"),
    "arena-surge": preset(
        arena,
        "clients 2 and 3 send five times as much until half-time",
        "DLPM Fig. 8",
        surging=(2, 3),
    ),
    "arena-surge-one": preset(
        arena,
        "as arena-surge, client 2 alone returns to normal",
        "DLPM Fig. 8 (arXiv text)",
        surging=(2,),
        rates=(0.3, 0.3, 0.3, 1.5),
    ),
}

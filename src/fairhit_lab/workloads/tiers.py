"""Clients of unequal weight, programs of two steps, and callers who give up: all that a row can say."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from fairhit_lab.traces.fields import MICROSECONDS
from fairhit_lab.traces.parameters import Counts, Natural, Positive, Share
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads.chat import arena_lengths, conversation
from fairhit_lab.workloads.programs import steady
from fairhit_lab.workloads.workload import preset


def _program(
    number: int,
    program: int,
    start_s: float,
    rng: Random,
    *,
    weights: Counts,
    margin: int,
    give_up: float,
    timeout: float,
) -> list[TraceRow]:
    """A draft and its revision; `max_tokens` leaves a margin, and some drafts are cancelled."""
    steps = conversation(
        number,
        program,
        start_s,
        rng,
        turns=2,
        system=32,
        think=0,
        lengths=arena_lengths,
        label="tier",
    )
    gone_us = None
    if rng.random() < give_up:
        gone_us = steps[0].arrival_us + round(rng.expovariate(1 / timeout) * MICROSECONDS)
    return [
        replace(
            step,
            weight=weights[number] * MICROSECONDS,
            max_tokens=step.output_len + margin,
            cancel_us=gone_us,
        )
        for step in steps
    ]


def tiers(
    rng: Random,
    *,
    weights: Counts = (4, 2, 1),
    rate: Positive = 0.5,
    margin: Natural = 64,
    give_up: Share = 0.2,
    timeout: Positive = 5,
    duration: Positive = 300,
) -> Iterator[TraceRow]:
    """A client a weight; `give_up` of the programs are cancelled after `timeout` seconds on average."""
    build = partial(_program, weights=weights, margin=margin, give_up=give_up, timeout=timeout)
    return steady(rng, build, clients=len(weights), rates=(rate,), duration=duration)


TIERS = {
    "tiers": preset(tiers, "weights 4:2:1, two-step programs, callers who give up", "trace format")
}

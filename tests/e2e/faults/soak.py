"""A gateway under a mixed load for a long time, while its engines fail, die, stop and come back."""

import asyncio
import random
import signal
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.faults.caller import Ask
from tests.e2e.faults.census import Census, Fate
from tests.e2e.faults.crowd import asking, mixed
from tests.e2e.faults.processes import EngineProcess, engines, retries, rss_mb
from tests.e2e.gateway.process import Process, running

ENGINES, CALLERS, CLIENTS = 3, 24, 500
ENGINE = ("--places", "8", "--token-s", "0.02", "--faults", "0.02")
LARGEST = 64 << 10
SETTINGS = {
    "identify_by_user": True,
    "max_payload_size": LARGEST,
    "max_tree_size": 2_000,  # soon full
    "first_byte_timeout_secs": 5.0,
    "idle_timeout_secs": 5.0,
    "request_timeout_secs": 8.0,
    "health_check_interval_secs": 0.5,
    "health_check_timeout_secs": 1.0,
}
# Memory is flat if it grows by less than this in the second half, by the line through its samples: what
# an allocator gives and takes is as much in ten minutes, and a leak of 20 bytes a request would be more.
FLAT_MB_PER_HOUR = 12.0
# Shares of requests that no engine could answer, and the bodies that make them.
WRONG = {
    b"": 0.01,
    b'{"model":"m","messages":[': 0.01,
    b'{"model":"m","messages":"none"}': 0.01,
    b'{"model":"no engine has it","messages":[{"role":"user","content":"a"}]}': 0.01,
    b"x" * (LARGEST + 1): 0.02,
}


@dataclass
class Outcome:
    """What a soak came to."""

    census: Census = field(default_factory=Census)
    retried: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    rss: list[tuple[float, float]] = field(default_factory=list)  # seconds, MB

    def growth_mb_per_hour(self) -> float:
        """The slope over the second half."""
        half = self.rss[len(self.rss) // 2 :]
        seconds, mb = zip(*half, strict=True)
        return statistics.linear_regression(seconds, mb).slope * 3600

    @property
    def is_flat(self) -> bool:
        return self.growth_mb_per_hour() < FLAT_MB_PER_HOUR

    def row(self) -> dict[str, object]:
        mb = [one for _, one in self.rss]
        return {
            **self.census.row(),
            "lost": self.census.lost,
            "retried": self.retried,
            **self.happened,
            "RSS MB": {"first": mb[0], "half-way": mb[len(mb) // 2], "last": mb[-1]},
            "RSS MB/hour in the second half": round(self.growth_mb_per_hour(), 2),
        }


def strained(rng: random.Random) -> Callable[[int], Ask]:
    """What callers do, with those among them that ask for what no engine can answer."""
    sound = mixed(rng, clients=CLIENTS, leavers=0.08)
    bodies, shares = list(WRONG), list(WRONG.values())

    def ask(number: int) -> Ask:
        if rng.random() < sum(shares):
            (body,) = rng.choices(bodies, shares)
            return Ask(number=number, instead=body or b" ")
        return sound(number)

    return ask


async def misfortune(
    rng: random.Random, process: Process, fleet: list[EngineProcess], happened: Counter[str]
) -> None:
    """One thing goes wrong, for a while; no more than one engine is away at a time."""
    unlucky = rng.choice(fleet)
    what = rng.choice(("killed", "stopped", "reloaded"))
    happened[what] += 1
    if what == "reloaded":
        process.signal(signal.SIGHUP)
        return
    if what == "killed":
        unlucky.kill()
        await asyncio.sleep(1)
        await unlucky.start()
    else:
        unlucky.signal(signal.SIGSTOP)
        await asyncio.sleep(rng.choice((0.5, 6)))  # noticed by no caller, and by the probes
        unlucky.signal(signal.SIGCONT)


async def soak(
    folder: Path,
    *,
    seconds: float,
    every_s: float,
    seed: int = 0,
    tell: Callable[[float, Census], None] = lambda *_: None,
) -> Outcome:
    """Run it; a misfortune comes `every_s` after the last was over."""
    rng, outcome = random.Random(seed), Outcome()
    loop = asyncio.get_running_loop()
    async with (
        engines(ENGINES, *ENGINE, "--seed", str(seed)) as fleet,
        running(folder, worker_urls=[one.url for one in fleet], **SETTINGS) as process,
    ):
        await process.says(" is up", times=ENGINES)
        async with asking(process.port, strained(rng), callers=CALLERS) as crowd:
            began, outcome.census = loop.time(), crowd.census
            trouble = asyncio.ensure_future(asyncio.sleep(every_s))
            while (passed := loop.time() - began) < seconds:
                await asyncio.sleep(min(seconds / 200, 5.0))
                outcome.rss.append((passed, rss_mb(process.pid)))
                tell(passed, crowd.census)
                if trouble.done():
                    trouble.result()
                    trouble = asyncio.ensure_future(
                        in_turn(every_s, rng, process, fleet, outcome.happened)
                    )
            await trouble
        outcome.retried = await retries(process)
    return outcome


async def in_turn(
    every_s: float,
    rng: random.Random,
    process: Process,
    fleet: list[EngineProcess],
    happened: Counter[str],
) -> None:
    await misfortune(rng, process, fleet, happened)
    await asyncio.sleep(every_s)


def judgement(outcome: Outcome) -> list[str]:
    """What is wrong with it, in words; the slope apart, which a short run cannot show."""
    census, complaints = outcome.census, []
    if census.lost:
        complaints.append(f"{census.lost} requests were lost: {census}")
    if census[Fate.ANSWERED] < census.offered * 0.7:
        complaints.append(f"few were answered: {census}")
    if min(census[Fate.REFUSED], census[Fate.FAILED], outcome.retried) == 0:
        complaints.append(f"nothing went wrong, so that nothing was tried: {census}")
    return complaints

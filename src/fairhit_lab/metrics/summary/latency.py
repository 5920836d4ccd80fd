"""Latencies of requests and programs, from their start to the first token and to the last.

A request starts when it arrives or when its last parent finishes, whichever is later; a program
lasts from its first request's start to its last request's finish.
"""

from array import array
from collections.abc import Mapping, Set

from fairhit.core.request import ClientId
from fairhit_lab.metrics.distribution import Distribution

PERCENTS = (50, 95, 99)


def in_seconds(t_us: int) -> float:
    """Microseconds as the nearest number of seconds."""
    return t_us / 10**6


def latency(samples: Distribution | None) -> dict[str, float | int | None]:
    """`samples` of microseconds as p50, p95, p99, mean and max in seconds; null where there is none."""
    names = [f"p{percent}_s" for percent in PERCENTS]
    if samples is None or not samples.count:
        return {"count": 0, **dict.fromkeys((*names, "mean_s", "max_s"))}
    values = map(in_seconds, samples.percentiles(PERCENTS))
    mean = samples.total / samples.count / 10**6
    return {
        "count": samples.count,
        **dict(zip(names, values, strict=True)),
        "mean_s": mean,
        "max_s": in_seconds(samples.largest),
    }


def per_token_us(first_us: int, finish_us: int, output_len: int) -> int | None:
    """Time per output token after the first, rounded down; None for an output of one token."""
    return (finish_us - first_us) // (output_len - 1) if output_len > 1 else None


class Programs:
    """First start and last finish of each program; about 150 bytes a program of the trace.

    One of which a request was rejected or cancelled stays open: it never completes.
    """

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._clients: list[ClientId] = []
        self._start_us = array("q")
        self._finish_us = array("q")
        self._open = array("q")  # requests that have started and not finished

    def __len__(self) -> int:
        return len(self._number)

    def start(self, program: str, client: ClientId, t_us: int) -> int:
        """A request of it starts; the program's number. O(1)."""
        number = self._number.setdefault(program, len(self._number))
        if number == len(self._clients):
            self._clients.append(client)
            self._start_us.append(t_us)
            self._finish_us.append(0)
            self._open.append(0)
        self._start_us[number] = min(self._start_us[number], t_us)
        self._open[number] += 1
        return number

    def finish(self, number: int, t_us: int) -> None:
        """Record that a request of program `number` finished. O(1)."""
        self._finish_us[number] = max(self._finish_us[number], t_us)
        self._open[number] -= 1

    def completions(
        self, end_us: int | None = None, given_up: Set[int] = frozenset()
    ) -> Mapping[ClientId, Distribution]:
        """Durations of the complete programs, by client, in order of appearance. O(programs).

        With `end_us`, open ones but those `given_up` count with the time until then.
        """
        lasted: dict[ClientId, Distribution] = {}
        for number, client in enumerate(self._clients):
            samples = lasted.setdefault(client, Distribution())
            if not self._open[number]:
                samples.add(self._finish_us[number] - self._start_us[number])
            elif end_us is not None and number not in given_up:
                samples.add(end_us - self._start_us[number])
        return lasted

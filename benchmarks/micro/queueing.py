"""CPU time of the dispatcher per request, sent at once or queued, by engines and waiting requests.

Caveat first: this is the dispatcher alone, in CPU time of one thread; HTTP, JSON and hashing the prompt
are not in it. A request arrives (8 chunks of 2 KB, half of them shared by its client's), starts, emits 64
tokens reported in four parts, and finishes; the number of waiting requests is constant.
"""

import statistics
import sys
import time
from collections import deque

from benchmarks.record import write_rows
from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, Usage
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

RUNS = 5
REQUESTS = 4_000
SLOTS = 16  # running at once in each engine
CLIENTS = 20
OUTPUTS = 64


class Bench:
    """A dispatcher, and engines that answer when `answer` is called."""

    def __init__(self, rules: QueueRules | None, engines: int, waiting: int) -> None:
        self.sent: deque[Ticket] = deque()
        self.dispatcher = Dispatcher(
            router=D2LPM(),
            index=ApproximatePrefixIndex(),
            rules=rules,
            max_in_flight=10**6,
            on_ready=self.sent.append,
            on_hold=lambda _, __: None,
        )
        for number in range(engines):
            self.dispatcher.engine_up(f"w{number}")
        self.prompts = [self._prompt(number) for number in range(REQUESTS)]
        self.number = 0
        # Running requests in the engines, and waiting ones.
        for _ in range(SLOTS * engines + waiting):
            self.arrive()

    @staticmethod
    def _prompt(number: int) -> tuple[int, ...]:
        shared = b"%d" % (number % CLIENTS) * 1024
        return ChunkedText().extended(shared[:1024] + b"%08d" % number * 128).chunks

    def arrive(self) -> None:
        self.number += 1
        request = Request(
            id=str(self.number),
            client=f"client-{self.number % CLIENTS}",
            prompt=self.prompts[self.number % REQUESTS],
            input_len=512,
            max_tokens=OUTPUTS,
            order=self.number,
        )
        ticket = self.dispatcher.arrive(request, model="m", text_len=2048, streams=True)
        if ticket.state.name == "WAITING":
            self.sent.append(ticket)

    def answer(self) -> None:
        """Start, emit and finish the oldest request that was sent."""
        ticket, dispatcher = self.sent.popleft(), self.dispatcher
        dispatcher.started(ticket)
        for outputs in (16, 32, 48):
            dispatcher.emitted(ticket, outputs)
        dispatcher.finished(ticket, Usage(512, OUTPUTS, 200), ran_us=1)


def cost_us(rules: QueueRules | None, engines: int, waiting: int) -> float:
    """Return microseconds of CPU for one request, from its arrival to its end."""
    bench = Bench(rules, engines, waiting)
    begun = time.thread_time_ns()
    for _ in range(REQUESTS):
        bench.arrive()
        bench.answer()
    return (time.thread_time_ns() - begun) / REQUESTS / 1_000


def main() -> None:
    """Measure, print, and write the rows."""
    rows: list[dict[str, object]] = []
    for name, rules in (
        ("engine", None),
        ("fcfs", QueueRules(scheduler="fcfs", max_engine_requests=SLOTS, queue_size=10**6)),
        ("dlpm", QueueRules(max_engine_requests=SLOTS, queue_size=10**6)),
    ):
        for engines, waiting in ((1, -8), (1, 100), (1, 10_000), (4, -32), (4, 100), (4, 10_000)):
            if rules is None and waiting > 0:
                continue
            values = sorted(cost_us(rules, engines, waiting) for _ in range(RUNS))
            row: dict[str, object] = {
                "queue": name,
                "engines": engines,
                "waiting": max(0, waiting),
                "us_min": round(values[0], 2),
                "us_median": round(statistics.median(values), 2),
                "us_max": round(values[-1], 2),
            }
            rows.append(row)
            print(
                f"{name:8} {engines} engines {max(0, waiting):6,} waiting:"
                f" {row['us_median']:6} us, least {row['us_min']} (of {RUNS})",
                flush=True,
            )
    write_rows("queueing", rows, seeds=[0])


if __name__ == "__main__":
    sys.exit(main())

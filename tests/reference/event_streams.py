"""Streams of events that a cluster could tell: random ones, pass by pass, and with passes run together."""

from collections import Counter

from fairhit_lab.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Refill,
    Reject,
    WorkerUpOrDown,
)


class _Engine:
    """A worker: passes whose length grows while the same requests run."""

    def __init__(self, number, rng):
        self.number = number
        self.waiting = []
        self.running = {}  # request -> outputs left
        self.leaving = []
        self.step = 0
        self.first_us, self.growth_us = rng.randint(1, 4), rng.randint(0, 2)
        self.alike = 0  # passes like the next one that went before
        self.end_us = None


class Stream:
    """Draws from `rng` who comes, goes, is admitted, preempted, cancelled, and which worker fails."""

    def __init__(self, rng, *, clients="abc", workers=2, requests=12, until_us=60):
        self.rng = rng
        self.events = []
        self.engines = [_Engine(number, rng) for number in range(workers)]
        self.client = {f"r{n}": rng.choice(clients) for n in range(requests)}
        self.arrives = {request: rng.randint(0, until_us) for request in self.client}
        self.lengths = {}  # (input, output)
        self.paid, self.answered, self.emitted = set(), set(), Counter()
        self.cancels = {
            request: self.arrives[request] + rng.randint(0, 20)
            for request in self.client
            if rng.random() < 0.15
        }
        for request in self.client:
            self.lengths[request] = rng.randint(1, 9), rng.randint(1, 12)
        self.fails_us = rng.randint(0, until_us) if workers > 1 and rng.random() < 0.4 else None
        for now in range(until_us + 400):
            self._instant(now)

    def tell(self, kind, *what):
        self.events.append(kind(*what))

    def _instant(self, now):
        for engine in self.engines:
            if engine.end_us == now:
                self._end(engine, now)
        if now == self.fails_us:
            self._fail(now)
        for request, when in self.arrives.items():
            if when == now:
                self._arrive(request, now)
        for request, when in self.cancels.items():
            if when == now:
                self._cancel(request, now)
        for engine in self.engines:
            if engine.end_us is None:
                self._start(engine, now)

    def _arrive(self, request, now):
        if self.rng.random() < 0.1:
            self.tell(Reject, now, None, request, self.client[request], "rpm")
            return
        self._send(request, now, self.rng.choice(self.engines))

    def _send(self, request, now, engine):
        for kind in (Dispatch, Enqueue):
            self.tell(kind, now, engine.number, request, self.client[request])
        engine.waiting.append(request)

    def _cancel(self, request, now):
        for engine in self.engines:
            if request in engine.waiting:
                engine.waiting.remove(request)
                self.tell(Cancel, now, engine.number, request, self.client[request])
            elif request in engine.running:
                engine.leaving.append(request)

    def _fail(self, now):
        lost, other = self.engines[0], self.engines[1]
        jobs = [*lost.waiting, *lost.running]
        lost.waiting, lost.running, lost.end_us, lost.alike = [], {}, None, 0
        self.tell(WorkerUpOrDown, now, lost.number, False)
        for request in jobs:
            self.tell(Preempt, now, lost.number, request, self.client[request], lost.step)
        for request in jobs:
            self._send(request, now, other)
        self.tell(WorkerUpOrDown, now, lost.number, True)

    def _start(self, engine, now):
        rng, running = self.rng, engine.running
        if running and rng.random() < 0.1:
            request = rng.choice(list(running))
            del running[request]
            engine.waiting.insert(0, request)
            engine.alike = 0
            self.tell(Preempt, now, engine.number, request, self.client[request], engine.step)
        if engine.waiting and rng.random() < 0.1:
            self.tell(Refill, now, engine.number, rng.randint(1, 3))
        while engine.waiting and rng.random() < 0.5:
            self._admit(engine, engine.waiting.pop(rng.randrange(len(engine.waiting))), now)
        if running:
            engine.end_us = now + engine.first_us + engine.growth_us * engine.alike

    def _admit(self, engine, request, now):
        input_len, output_len = self.lengths[request]
        extend_len, again = self.rng.randint(1, input_len), request in self.paid
        self.paid.add(request)
        if self.rng.random() < 0.3:
            self.tell(Evict, now, engine.number, self.rng.randint(1, 5))
        engine.alike = 0
        engine.running[request] = output_len - self.emitted[request]
        self.tell(
            Admit, now, engine.number, request, self.client[request],
            engine.step, extend_len, input_len, again,
        )  # fmt: skip

    def _end(self, engine, now):
        length_us = engine.first_us + engine.growth_us * engine.alike
        counts = dict(Counter(self.client[request] for request in engine.running))
        self.tell(
            Decode, now, engine.number, engine.step, counts, 1,
            (now - length_us) * PS_PER_US, length_us * PS_PER_US, 0,
        )  # fmt: skip
        for request in engine.running:
            self.emitted[request] += 1
            if request not in self.answered:
                self.answered.add(request)
                self.tell(FirstToken, now, engine.number, request, self.client[request])
        engine.alike += 1
        for request in list(engine.running):
            engine.running[request] -= 1
            who = (now, engine.number, request, self.client[request])
            if not engine.running[request]:
                self.tell(Finish, *who, engine.step, self.lengths[request][1])
            elif request in engine.leaving:
                self.tell(Cancel, *who)
            else:
                continue
            del engine.running[request]
            engine.alike = 0
        engine.leaving.clear()
        engine.end_us = None
        engine.step += 1


def run_together(events):
    """The same, each worker's like passes as one event that comes when the last of them ends."""
    given = []
    last = {}  # worker -> place in `given` of a run that may go on
    for event in events:
        place = last.get(event.worker) if isinstance(event, Decode) else None
        joined = None if place is None else _joined(given[place], event)
        if joined is not None:
            given[place] = None
            given.append(joined)
        else:
            given.append(event)
        if isinstance(event, Decode):
            last[event.worker] = len(given) - 1
        else:
            last.pop(getattr(event, "worker", None), None)
    return [event for event in given if event is not None]


def _joined(run, event):
    """Both as one run, None if the second is not like the first."""
    growth_ps = event.pass_ps - run.pass_ps if run.passes == 1 else run.growth_ps
    alike = (
        event.counts == run.counts
        and event.start_ps == run.t_us * PS_PER_US
        and growth_ps >= 0
        and event.pass_ps == run.pass_ps + run.passes * growth_ps
    )
    if not alike:
        return None
    return run._replace(t_us=event.t_us, passes=run.passes + 1, growth_ps=growth_ps)

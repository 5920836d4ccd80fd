"""[33] The window on an engine: never shut for good, never dry for long, and a short queue behind it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.dispatch.concurrency_limit import _MOST_GROWTH, BLIND, TARGET, ConcurrencyLimit


class Modelled:
    """An engine of `slots`, and a gateway that always has more to send."""

    def __init__(
        self,
        window: ConcurrencyLimit,
        slots: int,
        rng: random.Random,
        *,
        streams: float,
        is_preamble: bool = False,
    ) -> None:
        self.window, self.slots, self.rng, self.streams = window, slots, rng, streams
        self.is_preamble = (
            is_preamble  # the first byte comes when a request is sent, whether it runs or not
        )
        self.queue: list[tuple[int, bool]] = []
        self.running: list[list[int]] = []  # number, steps left
        self.idle = 0  # slots for which no request had been sent

    def step(self, *, report: bool = False) -> None:
        while self.window.has_capacity:
            streams = self.rng.random() < self.streams
            self.queue.append((self.window.sent(streams=streams), streams))
            if self.is_preamble:
                self.window.started(self.queue[-1][0])
            assert len(self.queue) < 1000, "a window without an end"
        self.window.turned_away()
        started = []
        while self.queue and len(self.running) < self.slots:
            number, streams = self.queue.pop(0)
            self.running.append([number, self.rng.randint(1, 20)])
            started += [number] if streams and not self.is_preamble else []
        self.idle = self.slots - len(self.running)
        if report:
            self.report()
        for number in started:
            self.window.started(number)
        for each in list(self.running):
            each[1] -= 1
            if not each[1]:
                self.running.remove(each)
                self.window.ended(each[0], answered=True)

    def report(self) -> None:
        self.window.observed(running=len(self.running), waiting=len(self.queue))


def keeps_its_queue_short_and_no_slot_idle(engine: Modelled) -> None:
    """Once it is learnt, and looked at every third step."""
    idle = longest = 0
    for number in range(120):
        engine.step(report=number % 3 == 0)
        idle += engine.idle
        longest = max(longest, len(engine.queue))

    assert longest <= TARGET + max(1, engine.window.size // 8) + 1
    assert idle <= 0.02 * 120 * engine.slots


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    slots=st.sampled_from([1, 3, 20, 150]),
    streams=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_with_the_engines_numbers_the_queue_is_short_and_never_dry(
    seed: int, slots: int, streams: float
) -> None:
    """Once it is learnt, whatever the answers look like: from one report to the next no slot is idle."""
    engine = Modelled(ConcurrencyLimit(), slots, random.Random(seed), streams=streams)
    engine.report()  # as the gateway does before the first request
    for number in range(120):
        engine.step(report=number % 3 == 0)
    keeps_its_queue_short_and_no_slot_idle(engine)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), slots=st.sampled_from([1, 3, 20, 100]))
def test_first_bytes_alone_do_nearly_as_well(seed: int, slots: int) -> None:
    """An engine without metrics whose answers are streamed."""
    engine = Modelled(ConcurrencyLimit(), slots, random.Random(seed), streams=1.0)
    for _ in range(150):
        engine.step()
    idle = longest = 0
    for _ in range(100):
        engine.step()
        idle += engine.idle
        longest = max(longest, len(engine.queue))

    assert idle <= 0.05 * 100 * slots
    assert longest <= TARGET + 2 + slots  # as many as may end in one step


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), slots=st.sampled_from([1, 3, 20, 100]))
def test_first_bytes_that_say_nothing_open_it_only_so_far(seed: int, slots: int) -> None:
    """An engine whose answers all begin at once, queue or not: its numbers are what counts."""
    engine = Modelled(ConcurrencyLimit(), slots, random.Random(seed), streams=1.0, is_preamble=True)
    engine.report()
    number = 0
    while (
        number < 120 or len(engine.queue) > TARGET
    ):  # what came before the first report has to run
        engine.step(report=number % 3 == 0)
        number += 1
        assert len(engine.queue) <= 2 * _MOST_GROWTH and number < 5000
    keeps_its_queue_short_and_no_slot_idle(engine)


def test_an_engine_that_shows_nothing_is_not_starved() -> None:
    """Neither numbers nor first bytes: it is sent a few dozen, and its queue is its own business."""
    engine = Modelled(ConcurrencyLimit(), 40, random.Random(1), streams=0.0)
    for _ in range(100):
        engine.step()

    assert engine.idle == 0
    assert len(engine.queue) <= BLIND


def test_numbers_that_stop_coming_stop_nothing() -> None:
    engine = Modelled(ConcurrencyLimit(), 8, random.Random(2), streams=1.0)
    for number in range(60):
        engine.step(report=number < 30)
        if number == 30:
            engine.window.unobserved()

    assert engine.idle == 0


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_an_engine_with_nothing_to_do_always_has_room(data: st.DataObject) -> None:
    """Whatever it said before, and whatever others send it: the size is never 0."""
    window, open_numbers = ConcurrencyLimit(), []
    for _ in range(data.draw(st.integers(0, 60))):
        what = data.draw(st.sampled_from(["send", "start", "end", "report", "blind", "restart"]))
        if what == "send" and window.has_capacity:
            open_numbers.append(window.sent(streams=data.draw(st.booleans())))
        elif what == "start" and open_numbers:
            window.started(data.draw(st.sampled_from(open_numbers)))
        elif what == "end" and open_numbers:
            number = open_numbers.pop(data.draw(st.integers(0, len(open_numbers) - 1)))
            window.ended(number, answered=data.draw(st.booleans()))
        elif what == "report":
            window.observed(
                running=data.draw(st.integers(0, 300)), waiting=data.draw(st.integers(0, 300))
            )
        elif what == "blind":
            window.unobserved()
        elif what == "restart":
            window.restart()
        assert window.size >= 1 and window.in_flight == len(open_numbers)
        assert window.has_capacity or window.in_flight
    for number in open_numbers:
        window.ended(number, answered=True)
    assert window.has_capacity


def test_the_operators_number_is_kept_to() -> None:
    window = ConcurrencyLimit(fixed=2)
    numbers = [window.sent(streams=True), window.sent(streams=True)]
    window.started(numbers[1])
    window.observed(running=2, waiting=0)

    assert not window.has_capacity
    window.ended(numbers[0], answered=True)
    assert window.has_capacity


@pytest.mark.parametrize("waiting", [3, 30, 300])
def test_what_others_send_is_not_taken_off_our_window_alone(waiting: int) -> None:
    """Two gateways before one engine: each gives up its part of what is too much."""
    window = ConcurrencyLimit()
    for _ in range(8):
        window.started(window.sent(streams=True))
    window.observed(running=80, waiting=waiting)

    assert 8 - window.size <= -(-8 * (waiting - TARGET) // (80 + waiting))


def test_an_engine_that_reports_nothing_of_what_it_was_sent_is_sent_no_more_for_that() -> None:
    """It says that nothing runs or waits: more than 12 % more at each report would be without end."""
    window = ConcurrencyLimit()
    for _ in range(300):
        while window.has_capacity:
            window.sent(streams=True)
        window.turned_away()
        window.observed(running=0, waiting=0)

    assert window.in_flight <= 2 * _MOST_GROWTH

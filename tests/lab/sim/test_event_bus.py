"""Observers of events get event objects; observers of fields get fields, and no object is made for them."""

from typing import get_args

from fairhit_lab.events import Enqueue, Event, Evict
from fairhit_lab.sim.event_bus import EventBus


class Takes:
    """An observer of fields; an event object is an error."""

    def __init__(self):
        self.took = []
        self.takes = dict.fromkeys(get_args(Event), self.take)

    def __call__(self, event, /):
        raise AssertionError(event)

    def take(self, *fields):
        self.took.append(fields)


def test_every_observer_gets_the_form_that_it_takes():
    """
    A summary counts while a file of events is written: both receive the same events.
    """
    takes, heard, also = Takes(), [], []
    bus = EventBus([takes, heard.append, also.append])

    bus.of[Enqueue](7, 0, "r", "a")
    bus(Evict(8, 0, 3))

    assert takes.took == [(7, 0, "r", "a"), (8, 0, 3)]
    assert heard == also == [Enqueue(7, 0, "r", "a"), Evict(8, 0, 3)]
    assert all(one is other for one, other in zip(heard, also, strict=True))


def test_observers_of_fields_are_called_first():
    """
    The position among the observers and the way of publishing do not matter.
    """
    takes = Takes()
    took_all = takes.took
    bus = EventBus([took_all.append, takes])

    bus.of[Enqueue](7, 0, "r", "a")
    bus(Evict(8, 0, 3))

    assert [type(each) for each in took_all] == [tuple, Enqueue, tuple, Evict]


def test_a_published_event_object_is_not_copied():
    heard = []
    event = Evict(8, 0, 3)

    EventBus([Takes(), heard.append])(event)

    assert heard[0] is event


def test_a_single_observer_of_fields_is_called_directly():
    takes = Takes()

    assert EventBus([takes]).of[Enqueue] == takes.take


def test_an_event_without_observers_is_dropped():
    EventBus([]).of[Enqueue](7, 0, "r", "a")

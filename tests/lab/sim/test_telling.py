"""Who wants events gets events; who takes their fields gets those, and no event is made for it."""

from typing import get_args

from fairhit_lab.events import Enqueue, Event, Evict
from fairhit_lab.sim.event_bus import Telling


class Takes:
    """An observer of fields; it complains if it is given an event."""

    def __init__(self):
        self.took = []
        self.takes = dict.fromkeys(get_args(Event), self.take)

    def __call__(self, event, /):
        raise AssertionError(event)

    def take(self, *fields):
        self.took.append(fields)


def test_every_observer_is_told_in_its_own_way():
    """
    A summary counts while a file of events is written, and both know the same.
    """
    takes, heard, also = Takes(), [], []
    telling = Telling([takes, heard.append, also.append])

    telling.of[Enqueue](7, 0, "r", "a")
    telling(Evict(8, 0, 3))

    assert takes.took == [(7, 0, "r", "a"), (8, 0, 3)]
    assert heard == also == [Enqueue(7, 0, "r", "a"), Evict(8, 0, 3)]
    assert all(one is other for one, other in zip(heard, also, strict=True))


def test_whoever_takes_fields_is_told_first():
    """
    Wherever it stands among the observers, and however the event is told.
    """
    takes = Takes()
    told = takes.took
    telling = Telling([told.append, takes])

    telling.of[Enqueue](7, 0, "r", "a")
    telling(Evict(8, 0, 3))

    assert [type(each) for each in told] == [tuple, Enqueue, tuple, Evict]


def test_an_event_that_is_there_is_not_made_again():
    heard = []
    event = Evict(8, 0, 3)

    Telling([Takes(), heard.append])(event)

    assert heard[0] is event


def test_whoever_takes_fields_alone_is_called_directly():
    takes = Takes()

    assert Telling([takes]).of[Enqueue] == takes.take


def test_nobody_may_listen():
    Telling([]).of[Enqueue](7, 0, "r", "a")

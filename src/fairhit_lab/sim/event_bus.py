"""Publishes simulation events to observers: as event objects, or as bare fields to those that take fields."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

from fairhit_lab.events import Event, Observer, Taking

# Publishes one kind of event, given its fields.
Publish: TypeAlias = Callable[..., None]


class EventBus:
    """Publishes every event to all observers: `bus(event)`, or `bus.of[kind](*fields)`.

    `bus.of` creates an event object only if an observer needs one. Observers that take fields (`Taking`)
    are called before those that take event objects; within each group the order is the given one.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._takers = [each for each in observers if isinstance(each, Taking)]
        self._listeners = [each for each in observers if not isinstance(each, Taking)]
        self.of: dict[type, Publish] = {kind: self._publisher(kind) for kind in get_args(Event)}

    def __call__(self, event: Event, /) -> None:
        for taker in self._takers:
            taker.takes[type(event)](*event)
        for listener in self._listeners:
            listener(event)

    def _publisher(self, kind: type) -> Publish:
        publishers: list[Publish] = [taker.takes[kind] for taker in self._takers]
        if self._listeners:
            publishers.append(_as_event(kind, self._listeners))
        return publishers[0] if len(publishers) == 1 else _to_all(publishers)


def _as_event(kind: Callable[..., Event], listeners: Sequence[Observer]) -> Publish:
    """Create one event object from the fields and pass it to every listener."""

    def publish(*fields: Any) -> None:
        event = kind(*fields)
        for listener in listeners:
            listener(event)

    return publish


def _to_all(publishers: Sequence[Publish]) -> Publish:
    def publish(*fields: Any) -> None:
        for each in publishers:
            each(*fields)

    return publish

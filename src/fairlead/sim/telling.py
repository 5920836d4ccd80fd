"""Tells observers what happens: by events, or by their fields alone to whoever takes those."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

from fairlead.core.events import Event, Observer, Taking

# Takes the fields of one kind of event.
Tell: TypeAlias = Callable[..., None]


class Telling:
    """Tells every event to all observers: `telling(event)`, or `telling.of[kind](*its_fields)`.

    The second makes an event only if there is an observer that wants one.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.of: dict[type, Tell] = {kind: _tell(kind, observers) for kind in get_args(Event)}

    def __call__(self, event: Event, /) -> None:
        self.of[type(event)](*event)


def _tell(kind: type, observers: Sequence[Observer]) -> Tell:
    tells: list[Tell] = [each.takes[kind] for each in observers if isinstance(each, Taking)]
    hearers = [each for each in observers if not isinstance(each, Taking)]
    if hearers:
        tells.append(_made(kind, hearers))
    return tells[0] if len(tells) == 1 else _to_all(tells)


def _made(kind: Callable[..., Event], hearers: Sequence[Observer]) -> Tell:
    """One event for all of them."""

    def tell(*fields: Any) -> None:
        event = kind(*fields)
        for hear in hearers:
            hear(event)

    return tell


def _to_all(tells: Sequence[Tell]) -> Tell:
    def tell(*fields: Any) -> None:
        for each in tells:
            each(*fields)

    return tell

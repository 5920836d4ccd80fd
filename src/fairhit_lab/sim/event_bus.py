"""Tells observers what happens: by events, or by their fields alone to whoever takes those."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

from fairhit_lab.events import Event, Observer, Taking

# Takes the fields of one kind of event.
Tell: TypeAlias = Callable[..., None]


class Telling:
    """Tells every event to all observers: `telling(event)`, or `telling.of[kind](*its_fields)`.

    The second makes an event only if there is an observer that wants one. Those that take fields
    (`Taking`) are told before those that want events, wherever they stand; else in the given order.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._takers = [each for each in observers if isinstance(each, Taking)]
        self._hearers = [each for each in observers if not isinstance(each, Taking)]
        self.of: dict[type, Tell] = {kind: self._tell(kind) for kind in get_args(Event)}

    def __call__(self, event: Event, /) -> None:
        for taker in self._takers:
            taker.takes[type(event)](*event)
        for hear in self._hearers:
            hear(event)

    def _tell(self, kind: type) -> Tell:
        tells: list[Tell] = [taker.takes[kind] for taker in self._takers]
        if self._hearers:
            tells.append(_made(kind, self._hearers))
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

"""One of several processes, towards its parent (crew.py): ready, alive, and what operators have changed."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

from fairlead.errors import CallerError, NotFound
from fairlead.gateway.changes import Change
from fairlead.gateway.control import Control
from fairlead.gateway.crew import ALIVE, ENDING, READY, Place
from fairlead.gateway.incoming import Incoming, RequestHead

_log = logging.getLogger(__name__)

# A longer change would not be one message.
_LONGEST = 32768


class Membership:
    """Hears of the others' changes from `join` on, and tells them of those made here.

    Everybody makes them in the order in which they came to the parent, so that all end alike.
    `orphaned` is called when the parent is gone.
    """

    def __init__(self, place: Place, control: Control, orphaned: Callable[[], None]) -> None:
        self._place = place
        self._control = control
        self._orphaned = orphaned
        self._beating: asyncio.Task[None] | None = None
        self._has_joined = False
        self._returning = 0  # changes made here that the parent has not sent back yet
        self._crossed = False  # others came first

    def join(self) -> None:
        """We serve: say so, and listen."""
        loop = asyncio.get_running_loop()
        self._place.channel.setblocking(False)
        loop.add_reader(self._place.channel, self._hear)
        self._control.tell = self._tell
        self._say(READY)
        self._has_joined = True
        if self._place.alive_s:
            self._beating = loop.create_task(self._beat())

    def supersede(self, urls: Iterable[str]) -> None:
        """The settings, read again, say how it is with these engines: what was changed before is past.

        Who has not joined reads them late, perhaps later than what was changed after them.
        """
        if self._has_joined:
            for url in urls:
                self._say(Change(os.getpid(), url, "", "", "").encode())

    def leave(self, patience_s: float) -> None:
        """We end, which may take so long."""
        self._say(ENDING + str(patience_s).encode())

    def _hear(self) -> None:
        try:
            message = self._place.channel.recv(2 * _LONGEST)
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        if not message:
            asyncio.get_running_loop().remove_reader(self._place.channel)
            self._orphaned()
            return
        change = Change.decode(message)
        if not self._has_been_made(change):
            self._repeat(change)

    def _has_been_made(self, change: Change) -> bool:
        """Whether it is ours, and nobody else's came in between."""
        if change.maker != os.getpid() or not self._returning:
            self._crossed = self._returning > 0
            return False
        in_order = not self._crossed
        self._returning -= 1
        self._crossed = self._crossed and self._returning > 0
        return in_order

    def _repeat(self, change: Change) -> None:
        request = Incoming(RequestHead())
        request.head.method, request.head.target = change.method.encode(), change.target.encode()
        request.body = change.body.encode()
        try:
            self._control.repeat(request)
        except NotFound:  # what is to go is not here
            return
        except CallerError as error:  # it was right there: who was told first was, too
            _log.warning(
                "%s %s, asked of another process, does not go here: %s",
                change.method, change.target, error,
            )  # fmt: skip

    def _tell(self, request: Incoming, about: str) -> None:
        asked = (request.head.method, request.head.target, request.body)
        message = Change(os.getpid(), about, *[one.decode() for one in asked]).encode()
        if len(message) > _LONGEST:
            _log.error("a change of %d bytes is too long to be told to the others", len(message))
        elif self._say(message):
            self._returning += 1

    def _say(self, message: bytes) -> bool:
        try:
            self._place.channel.send(message)
        except OSError as error:
            _log.error("the parent process was not told: %s", error.strerror)
            return False
        return True

    async def _beat(self) -> None:
        while True:
            self._say(ALIVE)
            await asyncio.sleep(self._place.alive_s)

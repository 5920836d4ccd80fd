"""One of several processes, towards its parent (crew.py): ready, alive, and what operators have changed."""

import asyncio
import logging
from collections.abc import Callable

import orjson

from fairlead.errors import CallerError
from fairlead.gateway.control import Control
from fairlead.gateway.crew import ALIVE, ENDING, READY, Place
from fairlead.gateway.incoming import Incoming, RequestHead

_log = logging.getLogger(__name__)

# A longer change would not be one message.
_LONGEST = 32768


class Membership:
    """Hears of the others' changes from `join` on, and tells them of those made here.

    `orphaned` is called when the parent is gone.
    """

    def __init__(self, place: Place, control: Control, orphaned: Callable[[], None]) -> None:
        self._place = place
        self._control = control
        self._orphaned = orphaned
        self._beating: asyncio.Task[None] | None = None

    def join(self) -> None:
        """We serve: say so, and listen."""
        loop = asyncio.get_running_loop()
        self._place.channel.setblocking(False)
        loop.add_reader(self._place.channel, self._hear)
        self._control.tell = self._tell
        self._say(READY)
        if self._place.alive_s:
            self._beating = loop.create_task(self._beat())

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
        method, target, body = orjson.loads(message)
        request = Incoming(RequestHead())
        request.head.method, request.head.target = method.encode(), target.encode()
        request.body = body.encode()
        try:
            self._control.repeat(request)
        except CallerError as error:  # it was right there: who was told first was, too
            _log.warning(
                "%s %s, asked of another process, does not go here: %s", method, target, error
            )

    def _tell(self, request: Incoming) -> None:
        asked = (request.head.method, request.head.target, request.body)
        message = orjson.dumps([one.decode() for one in asked])
        if len(message) > _LONGEST:
            _log.error("a change of %d bytes is too long to be told to the others", len(message))
            return
        self._say(message)

    def _say(self, message: bytes) -> None:
        try:
            self._place.channel.send(message)
        except OSError as error:
            _log.error("the parent process was not told: %s", error.strerror)

    async def _beat(self) -> None:
        while True:
            self._say(ALIVE)
            await asyncio.sleep(self._place.alive_s)

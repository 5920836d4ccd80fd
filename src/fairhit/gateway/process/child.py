"""A child's link to the supervisor: reports ready, alive and ending; exchanges operators' changes."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

from fairhit.errors import CallerError, NotFound
from fairhit.gateway.admin.control import Control
from fairhit.gateway.process.supervisor import ALIVE, ENDING, READY, ChildContext, OperatorChange
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead

_log = logging.getLogger(__name__)

# Bytes of a change that fit into one message.
_MAX_CHANGE = 32768


class SupervisorLink:
    """From `join` on: applies changes made at other children, and sends those made at this one.

    All children apply changes in the order in which the supervisor received them, so that they end in the
    same state. `orphaned` is called when the supervisor has died.
    """

    def __init__(
        self, context: ChildContext, control: Control, orphaned: Callable[[], None]
    ) -> None:
        self._context = context
        self._control = control
        self._orphaned = orphaned
        self._beating: asyncio.Task[None] | None = None
        self._has_joined = False
        self._returning = 0  # own changes that the supervisor has not sent back yet
        self._crossed = False  # another child's change arrived while own ones were returning

    def join(self) -> None:
        """Report that this child serves, and begin to receive changes."""
        loop = asyncio.get_running_loop()
        self._context.channel.setblocking(False)
        loop.add_reader(self._context.channel, self._receive)
        self._control.on_change = self._publish
        self._send(READY)
        self._has_joined = True
        if self._context.alive_s:
            self._beating = loop.create_task(self._beat())

    def supersede(self, urls: Iterable[str]) -> None:
        """Withdraw earlier changes about these engines: reloaded settings define their state.

        A child that has not joined reads the settings late, maybe after newer changes: it withdraws none.
        """
        if self._has_joined:
            for url in urls:
                self._send(OperatorChange(os.getpid(), url, "", "", "").encode())

    def announce_end(self, shutdown_s: float) -> None:
        """Report that this child ends, and how long that may take."""
        self._send(ENDING + str(shutdown_s).encode())

    def _receive(self) -> None:
        try:
            message = self._context.channel.recv(2 * _MAX_CHANGE)
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        if not message:
            asyncio.get_running_loop().remove_reader(self._context.channel)
            self._orphaned()
            return
        change = OperatorChange.decode(message)
        if not self._is_applied(change):
            self._apply(change)

    def _is_applied(self, change: OperatorChange) -> bool:
        """True for an own change if no other child's change came between making and returning it."""
        if change.maker != os.getpid() or not self._returning:
            self._crossed = self._returning > 0
            return False
        in_order = not self._crossed
        self._returning -= 1
        self._crossed = self._crossed and self._returning > 0
        return in_order

    def _apply(self, change: OperatorChange) -> None:
        request = IncomingRequest(RequestHead())
        request.head.method, request.head.target = change.method.encode(), change.target.encode()
        request.body = change.body.encode()
        try:
            self._control.repeat(request)
        except NotFound:  # the engine to remove is not known here
            return
        except CallerError as error:  # valid at its maker, but not here
            _log.warning(
                "%s %s, made at another process, cannot be applied here: %s",
                change.method, change.target, error,
            )  # fmt: skip

    def _publish(self, request: IncomingRequest, subject: str) -> None:
        """Send a change made at this child to the supervisor."""
        parts = (request.head.method, request.head.target, request.body)
        message = OperatorChange(os.getpid(), subject, *[part.decode() for part in parts]).encode()
        if len(message) > _MAX_CHANGE:
            _log.error("a change of %d bytes is too long to send to other processes", len(message))
        elif self._send(message):
            self._returning += 1

    def _send(self, message: bytes) -> bool:
        """Send to the supervisor; False if that failed."""
        try:
            self._context.channel.send(message)
        except OSError as error:
            _log.error("no message to the parent process: %s", error.strerror)
            return False
        return True

    async def _beat(self) -> None:
        while True:
            self._send(ALIVE)
            await asyncio.sleep(self._context.alive_s)

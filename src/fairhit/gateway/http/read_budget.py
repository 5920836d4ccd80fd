"""Turns of the event loop: the bytes that its steps read before it looks for what else has come.

A step longer than `SHORT` asks first. Beyond `TURN` bytes steps wait for the next turn, and a connection
whose data waits is not read meanwhile. The owners of what waits have a step each in turn: a client with a
thousand long bodies delays no other client's.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from typing import TypeVar

from fairhit.gateway.http.step_bounds import TURN
from fairhit.gateway.observability.log_exceptions import guarded

Result = TypeVar("Result")
# Work in steps; each says before it how many bytes it will read.
Steps = Generator[int, None, Result]


class Turns:
    """Counts the bytes of this turn, and keeps the steps that wait for another."""

    __slots__ = ("_is_counting", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = TURN
        self._is_counting = False
        # By owner; the one whose step is next comes first, and none is there without a step.
        self._waiting: OrderedDict[object, deque[tuple[int, Callable[[], None]]]] = OrderedDict()

    def grants(self, length: int) -> bool:
        """Whether a step of `length` bytes may run in this turn, before which none waits; if so, they are
        counted. O(1).
        """
        if self._left <= 0 or self._waiting:
            return False
        self._left -= length
        self._count()
        return True

    def wait(self, length: int, step: Callable[[], None], *, owner: object) -> None:
        """Run `step`, of `length` bytes, in a later turn, when it is `owner`'s. O(1)."""
        assert length > 0, length
        self._waiting.setdefault(owner, deque()).append((length, step))
        self._count()

    def run(self, steps: Steps[Result], *, owner: object) -> "asyncio.Future[Result]":
        """Run all `steps` of `owner`, each in its turn; their result. Who cancels it ends them."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def step() -> None:
            if future.cancelled():
                steps.close()
                return
            try:
                self.wait(next(steps), step, owner=owner)
            except StopIteration as stop:
                future.set_result(stop.value)
            except Exception as error:  # noqa: BLE001 - for whoever waits for the result
                future.set_exception(error)

        step()
        return future

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Another turn: what waits comes first."""
        self._is_counting = False
        self._left = TURN
        while self._waiting and self._left > 0:
            owner, own = self._waiting.popitem(last=False)
            length, step = own.popleft()
            if own:
                self._waiting[owner] = own  # behind the others
            self._left -= length
            guarded(step)
        if self._left < TURN:
            self._count()


class Reads:
    """The data that one connection receives: read at once, or in a later turn.

    `late` is what waits; whoever receives asks `put_off` for what is longer than `SHORT`, or while it is not
    empty, and is given the data again by `hand_on`.
    """

    __slots__ = ("_hand_on", "_handed", "_held", "_transport", "_turns", "late")

    def __init__(self, turns: Turns, hand_on: Callable[[bytes], None]) -> None:
        self._turns = turns
        self._hand_on = hand_on
        self.late: deque[bytes] = deque()
        self._handed = False  # it is being handed on
        self._held = False  # whatever comes, nobody wants more now
        self._transport: asyncio.Transport | None = None

    def connected(self, transport: asyncio.Transport) -> None:
        """The connection is made."""
        self._transport = transport

    def put_off(self, data: bytes) -> bool:
        """Whether `data` waits for a later turn, and the connection with it. O(1)."""
        if self._handed:
            return False
        if not self.late:
            if self._turns.grants(len(data)):
                return False
            self._turns.wait(len(data), self._next, owner=self)
        self.late.append(data)
        self._set()
        return True

    def hold(self) -> None:
        """Read no more of the connection."""
        self._held = True
        self._set()

    def go_on(self) -> None:
        """Read on, once what waits has been handed on."""
        self._held = False
        self._set()

    def lost(self, *, hand_on: bool) -> None:
        """The connection is closed: what waits is handed on now, or dropped."""
        self._transport = None
        while self.late:
            data = self.late.popleft()
            if hand_on:
                self._give(data)
        self._hand_on = _nobody  # which holds the connection, and that holds us

    def _next(self) -> None:
        if not self.late:  # the connection was lost
            return
        data = self.late.popleft()
        if self.late:
            self._turns.wait(len(self.late[0]), self._next, owner=self)
        try:
            self._give(data)
        except Exception:  # our bug: as where a loop hands it on
            if self._transport is not None:
                self._transport.abort()
            raise
        self._set()

    def _give(self, data: bytes) -> None:
        self._handed = True
        try:
            self._hand_on(data)
        finally:
            self._handed = False

    def _set(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.late or self._held:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _nobody(data: bytes) -> None:
    """Nobody is there to read it."""

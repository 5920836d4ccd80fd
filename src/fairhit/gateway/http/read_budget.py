"""Read budget: the bytes that one step and one event loop iteration read, parse, or search.

Work on long bodies and responses is cut into steps of at most `STEP` bytes. A step longer than `SHORT`
takes its bytes from the budget of the current iteration, `ITERATION`; when that is spent, steps wait for
the next iteration, and a connection whose data waits is not read meanwhile. So a health check waits for
an iteration or two, whatever clients and engines send. Waiting steps are served round-robin by owner: a
client with a thousand long bodies delays no other client's.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeVar

from fairhit.gateway.http.round_robin import OwnerQueues
from fairhit.gateway.observability.log_exceptions import log_exceptions

# Bytes of one step. uvloop reads no more from a socket at once. The worst JSON takes 160 ns a byte, and a
# step of it 40 ms; text takes 2 to 20 ns a byte.
STEP: Final = 256 << 10
# Bytes that the steps of one iteration read together, and bytes of text that are parsed in one call: few
# lists and objects, which are what makes JSON slow.
ITERATION: Final = 4 * STEP
# Shorter pieces are neither counted nor deferred: a request or an event of the usual length.
SHORT: Final = 16 << 10

Result = TypeVar("Result")
# Work in steps; each step yields the bytes that it will read before it reads them.
Steps = Generator[int, None, Result]


class ReadBudget:
    """Budget of bytes per event loop iteration, and the steps that wait for it."""

    __slots__ = ("_is_counting", "_left", "_waiting")

    def __init__(self) -> None:
        self._left = ITERATION
        self._is_counting = False
        self._waiting: OwnerQueues[tuple[int, Callable[[], None]]] = OwnerQueues()

    def take(self, length: int) -> bool:
        """Take `length` bytes from the budget for a step that runs now; False if it has to wait. O(1)."""
        if self._left <= 0 or self._waiting:
            return False
        self._left -= length
        self._renew_later()
        return True

    def run_later(self, length: int, step: Callable[[], None], *, owner: object) -> None:
        """Call `step`, which reads `length` bytes, in a later iteration, round-robin by `owner`. O(1)."""
        assert length > 0, length
        self._waiting.add(owner, (length, step))
        self._renew_later()

    def run(self, steps: Steps[Result], *, owner: object) -> "asyncio.Future[Result]":
        """Run `steps` of `owner` in later iterations. Cancelling the returned future ends them."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._step(steps, future, owner)
        return future

    def _step(self, steps: Steps[Result], future: "asyncio.Future[Result]", owner: object) -> None:
        """Run one step. No function of its own, which would refer to itself and so keep the result."""
        if future.cancelled():
            steps.close()
            return
        try:
            self.run_later(next(steps), partial(self._step, steps, future, owner), owner=owner)
        except StopIteration as stop:
            future.set_result(stop.value)
        except Exception as error:  # noqa: BLE001 - raised by whatever awaits the result
            future.set_exception(error)

    def _renew_later(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """Begin the next iteration with the waiting steps."""
        self._is_counting = False
        self._left = ITERATION
        while self._waiting and self._left > 0:
            length, step = self._waiting.pop()
            self._left -= length
            log_exceptions(step)
        if self._left < ITERATION:
            self._renew_later()


class BudgetedReads:
    """Data received by one connection: passed on at once, or when the budget allows.

    `late` is the deferred data. The connection calls `defer` for data longer than `SHORT` and for all
    data while `late` is not empty; deferred data is passed to `receive` later.
    """

    __slots__ = ("_budget", "_is_passing_on", "_paused", "_receive", "_transport", "late")

    def __init__(self, budget: ReadBudget, receive: Callable[[bytes], None]) -> None:
        self._budget = budget
        self._receive = receive
        self.late: deque[bytes] = deque()
        self._is_passing_on = False
        self._paused = False
        self._transport: asyncio.Transport | None = None

    def connected(self, transport: asyncio.Transport) -> None:
        """Set the transport that is paused and resumed."""
        self._transport = transport

    def defer(self, data: bytes) -> bool:
        """Defer `data` and pause the connection if the budget is spent; False: to be read now. O(1)."""
        if self._is_passing_on:
            return False
        if not self.late:
            if self._budget.take(len(data)):
                return False
            self._budget.run_later(len(data), self._read_late, owner=self)
        self.late.append(data)
        self._update_transport()
        return True

    def pause(self) -> None:
        """Stop reading: the receiver of the data is slow."""
        self._paused = True
        self._update_transport()

    def resume(self) -> None:
        """Read again, once the deferred data has been passed on."""
        self._paused = False
        self._update_transport()

    def close(self, *, pass_on: bool) -> None:
        """The connection is closed: pass deferred data on now, or drop it."""
        self._transport = None
        while self.late:
            data = self.late.popleft()
            if pass_on:
                self._pass_on(data)
        self._receive = _drop  # a reference to the connection, which refers to this object

    def _read_late(self) -> None:
        if not self.late:  # the connection was lost
            return
        data = self.late.popleft()
        if self.late:
            self._budget.run_later(len(self.late[0]), self._read_late, owner=self)
        try:
            self._pass_on(data)
        except Exception:  # a bug: close the connection, as asyncio does
            if self._transport is not None:
                self._transport.abort()
            raise
        self._update_transport()

    def _pass_on(self, data: bytes) -> None:
        self._is_passing_on = True
        try:
            self._receive(data)
        finally:
            self._is_passing_on = False

    def _update_transport(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.late or self._paused:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _drop(data: bytes) -> None:
    """Ignore data of a lost connection."""

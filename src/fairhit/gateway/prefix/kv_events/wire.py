"""ZMQ sockets on the event loop: frames in, as a callback; no task and no future for a message."""

import asyncio
from collections.abc import Callable
from time import monotonic

import zmq
from zmq.utils.monitor import parse_monitor_message

# Messages are read for so long at one go: requests are served on the same loop.
_AT_ONCE_S = 0.001
# A batch is what one step stored: of 100,000 tokens some 500 KB.
_MAX_MESSAGE = 32 << 20
# Batches that wait in our process while they cannot be read; the engine then begins to drop.
_MAX_WAITING = 2_000
# What engines keep unless told otherwise.
_MAX_REPLAYED = 10_000

Frames = list[bytes]


class Wire:
    """One socket, read whenever it has something, unless it is paused."""

    def __init__(self, socket: "zmq.Socket[bytes]", on_frames: Callable[[Frames], None]) -> None:
        self._socket = socket
        self._on_frames = on_frames
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self.resume()

    def send(self, frames: Frames) -> None:
        """Send without waiting; what does not go at once is lost. Raises zmq.ZMQError."""
        self._socket.send_multipart(frames, zmq.NOBLOCK)
        self._again()  # sending may swallow the signal that something came

    def pause(self) -> None:
        """Read no more: what comes waits in the socket."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        """Read on."""
        if not self._reading and not self._socket.closed:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)
            self._again()

    def close(self) -> None:
        """Close the socket."""
        if not self._socket.closed:
            self.pause()
            self._socket.close(linger=0)

    def _again(self) -> None:
        # The descriptor tells of a change only: what was there before must be looked for.
        self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        ends = monotonic() + _AT_ONCE_S
        while self._reading:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_frames(frames)
            if monotonic() > ends:
                self._again()
                return


class Sockets:
    """Makes sockets; one context for all of them."""

    def __init__(self) -> None:
        self._context = zmq.Context()

    def subscriber(
        self, endpoint: str, topic: str, on_frames: Callable[[Frames], None]
    ) -> tuple[Wire, "zmq.Socket[bytes]"]:
        """A SUB socket that connects, and connects again. Raises zmq.ZMQError for a wrong endpoint."""
        socket = self._context.socket(zmq.SUB)
        socket.set(zmq.RCVHWM, _MAX_WAITING)
        socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        socket.set(zmq.RECONNECT_IVL, 100)
        socket.set(zmq.RECONNECT_IVL_MAX, 2_000)
        # A machine that is gone without a word is noticed.
        socket.set(zmq.HEARTBEAT_IVL, 2_000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 6_000)
        socket.set(zmq.SUBSCRIBE, topic.encode())
        return Wire(socket, on_frames), socket

    def monitor(self, socket: "zmq.Socket[bytes]", on_link: Callable[[bool], None]) -> Wire:
        """`on_link` hears when `socket` is connected, and when no longer."""
        kinds = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        ear = socket.get_monitor_socket(kinds)

        def heard(frames: Frames) -> None:
            event = parse_monitor_message(frames)["event"]
            if event in {zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED}:
                on_link(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)

        return Wire(ear, heard)

    def dealer(self, endpoint: str, on_frames: Callable[[Frames], None]) -> Wire:
        """A DEALER socket to a replay endpoint. Raises zmq.ZMQError for a wrong one."""
        socket = self._context.socket(zmq.DEALER)
        socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        # An engine sends all it keeps at once, and drops what is not read in time.
        socket.set(zmq.RCVHWM, _MAX_REPLAYED)
        socket.connect(endpoint)
        return Wire(socket, on_frames)

    def close(self) -> None:
        """Once all sockets are closed."""
        self._context.term()

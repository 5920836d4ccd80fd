"""ZMQ sockets on the event loop, with a callback per message instead of a task or future."""

import asyncio
from collections.abc import Callable
from time import monotonic

import zmq
from zmq.utils.monitor import parse_monitor_message

# Longest time for reading messages in one iteration of the event loop, which serves requests, too.
_READ_S = 0.001
# A batch holds the blocks of one step: about 500 KB for 100,000 tokens.
_MAX_MESSAGE = 32 << 20
# Batches queued in this process before the engine begins to drop.
_MAX_QUEUED = 2_000
# Number of batches that engines keep by default.
_MAX_REPLAYED = 10_000

Frames = list[bytes]


class Wire:
    """A socket that calls `on_frames` with each message, unless paused."""

    def __init__(self, socket: "zmq.Socket[bytes]", on_frames: Callable[[Frames], None]) -> None:
        self._socket = socket
        self._on_frames = on_frames
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self.resume()

    def send(self, frames: Frames) -> None:
        """Send without waiting; raises zmq.ZMQError if the socket cannot take the message."""
        self._socket.send_multipart(frames, zmq.NOBLOCK)
        self._read_soon()  # sending may consume the descriptor's signal of a message

    def pause(self) -> None:
        """Stop reading: messages queue in the socket."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        """Continue reading."""
        if not self._reading and not self._socket.closed:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._readable)
            self._read_soon()

    def close(self) -> None:
        """Close the socket."""
        if not self._socket.closed:
            self.pause()
            self._socket.close(linger=0)

    def _read_soon(self) -> None:
        # The descriptor signals changes only: messages that are there already must be read.
        self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        ends = monotonic() + _READ_S
        while self._reading:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_frames(frames)
            if monotonic() > ends:
                self._read_soon()
                return


class Sockets:
    """Makes sockets in one context."""

    def __init__(self) -> None:
        self._context = zmq.Context()

    def subscriber(
        self, endpoint: str, topic: str, on_frames: Callable[[Frames], None]
    ) -> tuple[Wire, "zmq.Socket[bytes]"]:
        """A SUB socket that reconnects by itself. Raises zmq.ZMQError for an invalid endpoint."""
        socket = self._context.socket(zmq.SUB)
        socket.set(zmq.RCVHWM, _MAX_QUEUED)
        socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        socket.set(zmq.RECONNECT_IVL, 100)
        socket.set(zmq.RECONNECT_IVL_MAX, 2_000)
        # Detects a machine that fails without closing its connections.
        socket.set(zmq.HEARTBEAT_IVL, 2_000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 6_000)
        socket.set(zmq.SUBSCRIBE, topic.encode())
        return Wire(socket, on_frames), socket

    def monitor(self, socket: "zmq.Socket[bytes]", on_link: Callable[[bool], None]) -> Wire:
        """Call `on_link` when `socket` connects (True) and disconnects (False)."""
        kinds = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        events = socket.get_monitor_socket(kinds)

        def on_event(frames: Frames) -> None:
            event = parse_monitor_message(frames)["event"]
            if event in {zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED}:
                on_link(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)

        return Wire(events, on_event)

    def dealer(self, endpoint: str, on_frames: Callable[[Frames], None]) -> Wire:
        """A DEALER socket to a replay endpoint. Raises zmq.ZMQError for an invalid one."""
        socket = self._context.socket(zmq.DEALER)
        socket.set(zmq.MAXMSGSIZE, _MAX_MESSAGE)
        # An engine sends all batches at once, and drops those that are not read in time.
        socket.set(zmq.RCVHWM, _MAX_REPLAYED)
        socket.connect(endpoint)
        return Wire(socket, on_frames)

    def close(self) -> None:
        """Close the context, after all sockets."""
        self._context.term()

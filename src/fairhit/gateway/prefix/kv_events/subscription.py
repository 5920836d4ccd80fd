"""Subscription to one publisher over the network; missing batches are requested as a replay.

After a lost connection the last applied batch is requested again. If the engine still has it, the engine
has not restarted and its mirror stays valid; otherwise all its blocks are dropped.
"""

import asyncio
from collections.abc import Callable

import zmq

from fairhit.gateway.prefix.kv_events.feed import BatchOutcome, Feed
from fairhit.gateway.prefix.kv_events.wire import Frames, Sockets, Wire

# vLLM serves replays between two batches, at least ten times a second.
_REPLAY_TIMEOUT_S = 5.0
# Without a connection a mirror grows stale: its blocks are dropped after this time.
_DISCONNECTED_S = 10.0
_END = (-1).to_bytes(8, "big", signed=True)
_NUMBER_BYTES = 8


class Subscription:
    """Keeps `feed` up to date with the publisher at `endpoint` until closed.

    Raises zmq.ZMQError for an invalid endpoint.
    """

    def __init__(
        self,
        *,
        sockets: Sockets,
        feed: Feed,
        endpoint: str,
        replay_endpoint: str | None,
        topic: str,
    ) -> None:
        self._sockets = sockets
        self._feed = feed
        self._replay_endpoint = replay_endpoint
        self._loop = asyncio.get_running_loop()
        self._events, socket = sockets.subscriber(endpoint, topic, self._on_frames)
        self._links = sockets.monitor(socket, self._on_link)
        self._socket = socket
        self._replay: _Replay | None = None
        self._expiry: asyncio.TimerHandle | None = None
        try:
            socket.connect(endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        """Close all sockets."""
        self._end_replay()
        self._cancel_expiry()
        self._socket.disable_monitor()
        self._links.close()
        self._events.close()

    # -- the connection

    def _on_link(self, connected: bool) -> None:
        self._end_replay()
        self._cancel_expiry()
        self._events.resume()
        if not connected:
            self._feed.mark_stale()
            self._expiry = self._loop.call_later(_DISCONNECTED_S, self._feed.reset)
        elif self._feed.next_number:
            self._request_last()
        else:
            self._request_all()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # -- published batches

    def _on_frames(self, frames: Frames) -> None:
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            self._feed.counts.malformed += 1
            self._feed.on_error("a message that is not topic, number and batch")
            return
        number, payload = int.from_bytes(frames[1], "big"), frames[2]
        outcome = self._feed.receive(number, payload)
        if outcome is BatchOutcome.GAP:
            self._feed.counts.gaps += 1
            self._fill_gap(number, payload)
        elif outcome is BatchOutcome.RESTARTED:
            if number == 0:
                self._feed.receive(number, payload)
            else:
                self._request_all()

    # -- replays

    def _fill_gap(self, number: int, payload: bytes) -> None:
        """Request the missing batches before `number`, then apply `payload`."""
        following = self._feed.next_number
        assert following is not None, "a gap follows an applied batch"

        def ended() -> None:
            if self._feed.receive(number, payload) is BatchOutcome.GAP:
                self._feed.reset()
                self._feed.receive(number, payload)

        self._start_replay(following, self._feed.receive, ended)

    def _request_last(self) -> None:
        """Request the last applied batch and later ones, to detect whether the engine has restarted."""
        following = self._feed.next_number
        assert following, "requested only after a batch was applied"
        same = False

        def replayed(number: int, payload: bytes) -> BatchOutcome:
            nonlocal same
            if not same:
                same = self._feed.is_last(number, payload)
                return BatchOutcome.DUPLICATE
            return self._feed.receive(number, payload)

        def ended() -> None:
            if same:
                self._feed.mark_current()
            else:
                self._feed.reset()
                self._request_all()

        self._start_replay(following - 1, replayed, ended)

    def _request_all(self) -> None:
        """Request all batches that the publisher keeps: all since its start, unless it has run for long."""

        def ended() -> None:
            if (
                self._feed.next_number is None
                and self._replay is not None
                and self._replay.is_complete
            ):
                self._feed.mark_empty()

        self._start_replay(0, self._feed.receive, ended)

    def _start_replay(
        self, first: int, take: Callable[[int, bytes], BatchOutcome], ended: Callable[[], None]
    ) -> None:
        """Request a replay from number `first`, and read no published batches meanwhile.

        Calls `ended` after the replay, or at once if the publisher offers none.
        """
        self._end_replay()
        if self._replay_endpoint is None:
            ended()
            return
        self._feed.counts.replays += 1
        self._events.pause()

        def done() -> None:
            following = self._feed.next_number
            if replay.has_hole and replay.has_applied and following is not None:
                self._start_replay(following, take, ended)  # ends, because each replay advances
                return
            ended()
            if self._replay is replay:
                self._end_replay()
                self._events.resume()

        replay = _Replay(self._sockets, self._replay_endpoint, take, done)
        self._replay = replay
        replay.send(first)

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.close()
            self._replay = None


class _Replay:
    """A request to replay the batches from a sequence number on, and its response."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        take: Callable[[int, bytes], BatchOutcome],
        done: Callable[[], None],
    ) -> None:
        self._take = take
        self._done = done
        self.is_complete = False
        self.has_applied = False  # any batch
        self.has_hole = False  # frames were dropped: the engine sent faster than we read
        self._wire: Wire = sockets.dealer(endpoint, self._on_frames)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_REPLAY_TIMEOUT_S, done)

    def send(self, first: int) -> None:
        """Request the batches from number `first` on."""
        try:
            self._wire.send([b"", first.to_bytes(_NUMBER_BYTES, "big")])
        except zmq.ZMQError:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._done)

    def close(self) -> None:
        """Close the socket."""
        self._timer.cancel()
        self._wire.close()

    def _on_frames(self, frames: Frames) -> None:
        """Apply a replayed batch. Older versions omit the topic: the number is the last frame but one."""
        if len(frames) < 3 or len(frames[-2]) != _NUMBER_BYTES:
            return
        self._timer.cancel()
        if frames[-2] == _END:
            self.is_complete = True
            self._done()
            return
        self._timer = self._loop.call_later(_REPLAY_TIMEOUT_S, self._done)
        if not self.has_hole:
            outcome = self._take(int.from_bytes(frames[-2], "big"), frames[-1])
            self.has_applied = self.has_applied or outcome is BatchOutcome.APPLIED
            self.has_hole = outcome is BatchOutcome.GAP

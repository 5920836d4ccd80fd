"""One publisher's events over the network: subscribed to, asked again where some are missing.

After a lost connection the engine's last batch is asked for once more. If it is the one we had, the same
engine goes on, and so does our view of its cache; if not, all that was known of it is dropped.
"""

import asyncio
from collections.abc import Callable

import zmq

from fairhit.gateway.prefix.kv_events.feed import BatchOutcome, Feed
from fairhit.gateway.prefix.kv_events.wire import Frames, Sockets, Wire

# vLLM looks for who wants a replay between two batches, at least ten times a second.
_REPLAY_TIMEOUT_S = 5.0
# A view of a cache that cannot be heard of grows old: after this it is dropped.
_SILENCE_S = 10.0
_END = (-1).to_bytes(8, "big", signed=True)
_NUMBER_BYTES = 8


class Subscription:
    """Keeps `feed` up to date with the publisher at `endpoint`, as long as it is not closed.

    Raises zmq.ZMQError for an endpoint that is none.
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
        self._events, socket = sockets.subscriber(endpoint, topic, self._heard)
        self._links = sockets.monitor(socket, self._linked)
        self._socket = socket
        self._replay: _Replay | None = None
        self._silence: asyncio.TimerHandle | None = None
        try:
            socket.connect(endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        """Hear no more."""
        self._end_replay()
        self._cancel_silence()
        self._socket.disable_monitor()
        self._links.close()
        self._events.close()

    # -- the connection

    def _linked(self, connected: bool) -> None:
        self._end_replay()
        self._cancel_silence()
        self._events.resume()
        if not connected:
            self._feed.doubt()
            self._silence = self._loop.call_later(_SILENCE_S, self._feed.forget)
        elif self._feed.following:
            self._ask_again()
        else:
            self._ask_for_all()

    def _cancel_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    # -- what is published

    def _heard(self, frames: Frames) -> None:
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            self._feed.counts.malformed += 1
            self._feed.complain("a message that is not topic, number and batch")
            return
        number, payload = int.from_bytes(frames[1], "big"), frames[2]
        verdict = self._feed.receive(number, payload)
        if verdict is BatchOutcome.MISSING:
            self._feed.counts.gaps += 1
            self._fill_gap(number, payload)
        elif verdict is BatchOutcome.ANEW:
            if number == 0:
                self._feed.receive(number, payload)
            else:
                self._ask_for_all()

    # -- what is asked for again

    def _fill_gap(self, number: int, payload: bytes) -> None:
        """Batches before `number` are missing: ask for them, and take it after them."""
        following = self._feed.following
        assert following is not None, "before the first nothing is missing"

        def ended() -> None:
            if self._feed.receive(number, payload) is BatchOutcome.MISSING:
                self._feed.forget()
                self._feed.receive(number, payload)

        self._start_replay(following, self._feed.receive, ended)

    def _ask_again(self) -> None:
        """Ask for the last batch and what follows it: is it the same engine still?"""
        following = self._feed.following
        assert following, "asked only where a batch was taken"
        same = False

        def replayed(number: int, payload: bytes) -> BatchOutcome:
            nonlocal same
            if not same:
                same = self._feed.is_last(number, payload)
                return BatchOutcome.SEEN
            return self._feed.receive(number, payload)

        def ended() -> None:
            if same:
                self._feed.trust()
            else:
                self._feed.forget()
                self._ask_for_all()

        self._start_replay(following - 1, replayed, ended)

    def _ask_for_all(self) -> None:
        """Ask for all that the publisher remembers: from its beginning, if it is young enough."""

        def ended() -> None:
            if self._feed.following is None and self._replay is not None and self._replay.answered:
                self._feed.nothing_yet()

        self._start_replay(0, self._feed.receive, ended)

    def _start_replay(
        self, first: int, take: Callable[[int, bytes], BatchOutcome], ended: Callable[[], None]
    ) -> None:
        """Replay from `first`; meanwhile what is published waits. Without an endpoint: `ended` now."""
        self._end_replay()
        if self._replay_endpoint is None:
            ended()
            return
        self._feed.counts.replays += 1
        self._events.pause()

        def done() -> None:
            following = self._feed.following
            if replay.has_hole and replay.took and following is not None:
                self._start_replay(following, take, ended)  # each round gets further, so it ends
                return
            ended()
            if self._replay is replay:
                self._end_replay()
                self._events.resume()

        replay = _Replay(self._sockets, self._replay_endpoint, take, done)
        self._replay = replay
        replay.ask(first)

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.close()
            self._replay = None


class _Replay:
    """One request for batches from a number on, and its answer."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        take: Callable[[int, bytes], BatchOutcome],
        done: Callable[[], None],
    ) -> None:
        self._take = take
        self._done = done
        self.answered = False  # to its end
        self.took = False  # anything
        self.has_hole = False  # the engine sent faster than we read
        self._wire: Wire = sockets.dealer(endpoint, self._heard)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_REPLAY_TIMEOUT_S, done)

    def ask(self, first: int) -> None:
        """Ask for the batches from number `first` on."""
        try:
            self._wire.send([b"", first.to_bytes(_NUMBER_BYTES, "big")])
        except zmq.ZMQError:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._done)

    def close(self) -> None:
        """Hear no more of it."""
        self._timer.cancel()
        self._wire.close()

    def _heard(self, frames: Frames) -> None:
        """Older versions leave the topic out: the number is the last frame but one."""
        if len(frames) < 3 or len(frames[-2]) != _NUMBER_BYTES:
            return
        self._timer.cancel()
        if frames[-2] == _END:
            self.answered = True
            self._done()
            return
        self._timer = self._loop.call_later(_REPLAY_TIMEOUT_S, self._done)
        if not self.has_hole:
            verdict = self._take(int.from_bytes(frames[-2], "big"), frames[-1])
            self.took = self.took or verdict is BatchOutcome.TAKEN
            self.has_hole = verdict is BatchOutcome.MISSING

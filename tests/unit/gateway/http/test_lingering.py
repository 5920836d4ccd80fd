"""After the last answer of a connection: what still comes is read for a while, or the answer may be lost."""

import asyncio
from collections.abc import Callable

import pytest
from tests.wire.recording import Wire

from fairhit.gateway.http import client_connection as caller_module
from fairhit.gateway.http.accept.listeners import MetricsPage
from fairhit.gateway.http.client_connection import ClientConnection

LAST = b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
TOO_LONG = b"POST /health HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n"
NO_HTTP = b"\x16\x03\x01\x02"


class Clock:
    """The time of a loop that does nothing."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class Lingering:
    """A connection whose last answer was caused by `data`, and who is at its other end."""

    def __init__(self, data: bytes, *, half_closes: bool = True) -> None:
        self.wire, self.clock = Wire(), Clock()
        self.wire.half_closes = half_closes
        self.caller = ClientConnection(MetricsPage(lambda: b"", client_timeout_s=60))
        self.caller._loop = self.clock  # type: ignore[assignment]
        self.caller.connection_made(self.wire)
        self.caller.data_received(data)

    def open_for(self, sends: bytes, *, times: int = 1) -> float:
        """How long until it is closed, if the caller sends so much so many times a second."""
        begun = self.clock.now
        while not self.wire.closed:
            for _ in range(times):
                self.clock.now += 1 / times
                if sends:
                    self.caller.data_received(sends)
            self.caller.tick(self.clock.now)
        return round(self.clock.now - begun)


@pytest.fixture
def run() -> Callable[[Callable[[], None]], None]:
    async def story(test: Callable[[], None]) -> None:
        test()

    return lambda test: asyncio.run(story(test))


@pytest.mark.parametrize("data", [LAST, TOO_LONG, NO_HTTP], ids=["last", "413", "400"])
@pytest.mark.parametrize(
    ("sends", "times", "seconds"),
    [(b"", 1, 3), (b"x", 8, 3), (b"x" * 4096, 4, 31), (b"x" * 65_536, 64, 31)],
    ids=["nothing", "now and then", "slowly", "fast"],
)
def test_what_is_sent_after_the_last_answer_is_thrown_away_for_a_while(
    run: Callable[[Callable[[], None]], None], data: bytes, sends: bytes, times: int, seconds: int
) -> None:
    def test() -> None:
        lingering = Lingering(data)
        assert (lingering.wire.ended, lingering.wire.closed) == (True, False)
        assert lingering.open_for(sends, times=times) == seconds

    run(test)


def test_so_many_bytes_are_thrown_away_and_no_more(
    run: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_module, "_LINGER_MAX_LEN", 1 << 20)

    def test() -> None:
        lingering = Lingering(TOO_LONG)
        for _ in range(16):
            lingering.caller.data_received(b"x" * 65_536)
        assert not lingering.wire.closed
        lingering.caller.data_received(b"x")
        assert lingering.wire.closed

    run(test)


def test_over_tls_only_who_may_still_be_sending_is_waited_for(
    run: Callable[[Callable[[], None]], None],
) -> None:
    """To end is to close there: a caller that waits for the end would wait for the gateway."""

    def test() -> None:
        assert Lingering(LAST, half_closes=False).wire.closed
        early = Lingering(TOO_LONG, half_closes=False)
        assert not early.wire.closed
        assert early.open_for(b"") == 3

    run(test)


def test_a_gateway_that_shuts_down_waits_only_for_who_may_still_be_sending(
    run: Callable[[Callable[[], None]], None],
) -> None:
    def test() -> None:
        done, early = Lingering(LAST), Lingering(TOO_LONG)
        for one in (done, early):
            one.caller.finish()
        assert (done.wire.closed, early.wire.closed) == (True, False)

    run(test)

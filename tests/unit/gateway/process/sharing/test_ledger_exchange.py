"""When a gateway exchanges with the account, and what it does while it cannot."""

import asyncio
import fcntl
import itertools
import logging
import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import pytest
from tests.e2e.gateway.world import eventually

from fairhit.core.request import Request
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.dispatch import Dispatcher, LedgerReport, QueueRules, SharedLedger, Ticket, Usage
from fairhit.gateway.process.sharing.ledger_exchange import LedgerExchange
from fairhit.gateway.process.sharing.ledger_format import read, write
from fairhit.gateway.process.sharing.ledger_stores import Busy, Change, SharedMemory
from fairhit.gateway.settings import GatewaySettings
from fairhit.gateway.settings.types import redis_url
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

SETTINGS = GatewaySettings(worker_urls=("http://127.0.0.1:9",), share_interval_secs=0.01)


class Skint:
    """A gateway with one engine, of one place, at which b has used up its credit and asks again."""

    def __init__(self) -> None:
        rules = QueueRules(quantum=100, shared=True, max_engine_requests=1)
        self.dispatcher = Dispatcher(
            router=D2LPM(), index=ApproximatePrefixIndex(), rules=rules, on_ready=lambda _: None
        )
        self.dispatcher.engine_up("w")
        self._first = self._ask(1)
        self._ask(2)

    def _ask(self, number: int) -> Ticket:
        text = b"%08d" % number * 20
        request = Request(
            id=str(number), client="b", prompt=ChunkedText().extended(text).chunks,
            input_len=40, max_tokens=50, order=number,
        )  # fmt: skip
        return self.dispatcher.arrive(request, model=None, text_len=len(text), streams=True)

    def spend(self) -> None:
        """The first is served: more than its credit."""
        self.dispatcher.started(self._first)
        self.dispatcher.finished(self._first, Usage(40, 200, 0), ran_us=1)

    def waiting(self) -> int:
        return len(self.dispatcher.queue)


@dataclass
class Fails:
    """A store whose value no writer can change."""

    error: Exception
    asked: int = 0

    async def change(self, change: Change) -> None:
        self.asked += 1
        change(None)
        raise self.error

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Recovers:
    """A store that fails until it has a value."""

    value: bytes | None = None

    async def change(self, change: Change) -> None:
        if self.value is None:
            raise OSError("out of reach")
        self.value = change(self.value)

    async def close(self) -> None:
        """Nothing is held."""


def hold(memory: SharedMemory, parent: Connection) -> None:
    parent.recv()
    fcntl.lockf(memory.descriptor, fcntl.LOCK_EX)
    parent.send("locked")
    parent.recv()


async def pauses(store: Fails, count: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """So many of its first pauses in seconds; each is after one try, and takes no time here."""
    found: list[float] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        found.append(seconds)
        assert store.asked == len(found)
        if len(found) == count:
            enough.set()
            await asyncio.Event().wait()

    exchanging = LedgerExchange(Skint().dispatcher, store, SETTINGS)
    monkeypatch.setattr(asyncio, "sleep", pause)
    exchanging.start()
    async with asyncio.timeout(30):
        await enough.wait()
    await exchanging.close()
    return found


def sample(exchanging: LedgerExchange, name: str) -> float:
    return next(each.samples[0].value for each in exchanging.collect() if each.name == name)


def test_who_never_gets_to_the_account_goes_on_alone() -> None:
    """Another process is stopped while it has the lock; that a waits there, with credit, it said before."""
    memory, fork = SharedMemory.create(), multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    other = fork.Process(target=hold, args=(memory, theirs))
    other.start()

    async def run() -> None:
        world, said = Skint(), SharedLedger()
        waits = LedgerReport(charged={}, waiting={(): ("a",)})
        said.exchange("other", waits, lambda _: 100 * UNITS_PER_TOKEN)
        await memory.change(lambda _: write(said))
        exchanging = LedgerExchange(world.dispatcher, memory, SETTINGS)
        exchanging.start()
        await eventually(lambda: sample(exchanging, "fairhit_sharing_gateways") == 2)
        ours.send("lock")
        ours.recv()
        world.spend()
        assert world.waiting() == 1, "it is a's turn"

        await eventually(lambda: world.waiting() == 0)
        assert sample(exchanging, "fairhit_sharing_up") == 0
        ours.send("let go")
        other.join()
        await eventually(lambda: sample(exchanging, "fairhit_sharing_up") == 1)
        await exchanging.close()

    asyncio.run(run())


def test_no_client_pays_for_an_outage_not_even_for_its_last_moment() -> None:
    async def run() -> None:
        world, store, said = Skint(), Recovers(), SharedLedger()
        exchanging = LedgerExchange(world.dispatcher, store, SETTINGS)
        exchanging.start()
        await eventually(lambda: sample(exchanging, "fairhit_sharing_up") == 0)
        world.spend()  # after the last try that failed
        waits = LedgerReport(charged={}, waiting={(): ("a",)})
        said.exchange("other", waits, lambda _: 100 * UNITS_PER_TOKEN)
        store.value = write(said)
        await eventually(lambda: sample(exchanging, "fairhit_sharing_up") == 1)
        assert read(store.value).deficits.get("b", 0) == 0
        await exchanging.close()

    asyncio.run(run())


def test_an_exchange_that_others_were_quicker_than_costs_time_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By this clock it takes two seconds: the next comes after forty."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: float(next(seconds)))
    busy = Fails(Busy("others were quicker"))
    assert 0.8 * 40 <= asyncio.run(pauses(busy, 1, monkeypatch))[0] <= 40


def test_others_are_notified_how_often_it_comes() -> None:
    memory = SharedMemory.create()

    async def run() -> None:
        exchanging = LedgerExchange(Skint().dispatcher, memory, SETTINGS)
        exchanging.start()
        await eventually(lambda: sample(exchanging, "fairhit_sharing_gateways") == 1)
        (own,) = read(os.pread(memory.descriptor, 10_000, 0)).peers.values()
        assert own.period_s >= SETTINGS.share_interval_secs
        await exchanging.close()

    asyncio.run(run())


def test_a_bug_is_logged_once_and_met_ever_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    with caplog.at_level(logging.ERROR):
        found = asyncio.run(pauses(Fails(RuntimeError("a bug")), 5, monkeypatch))
    for failures, seconds in enumerate(found, start=1):
        most = SETTINGS.share_interval_secs * 2**failures
        assert 0.8 * most <= seconds <= most
    assert [record.message for record in caplog.records] == ["sharing: RuntimeError: a bug"]


@pytest.mark.parametrize("option", ["decode_responses=True", "socket_timeout=9", "client_name="])
def test_a_url_may_say_of_tls_what_it_will_and_nothing_else(option: str) -> None:
    assert redis_url("rediss://host/0?ssl_ca_certs=/ca") == "rediss://host/0?ssl_ca_certs=/ca"
    with pytest.raises(ValueError, match=option.partition("=")[0]):
        redis_url("rediss://host/0?" + option)
    with pytest.raises(ValueError, match="'ssl_ca_certs' is for rediss:// only"):
        redis_url("redis://host/0?ssl_ca_certs=/ca")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h:1/7/",
        "redis://:p%2Fw@[::1]:1/0",
        "unix:///run/redis.sock",
        "unix://u@/s",
    ],
)
def test_an_address_that_redis_clients_know(url: str) -> None:
    assert redis_url(url) == url


@pytest.mark.parametrize(
    "url",
    ["foo", "http://h", "redis://h:x", "redis://h:70000", "redis://[::1", "redis://h/abc", "unix://",
     "redis://:the/password@h"],
)  # fmt: skip
def test_what_is_no_address_of_redis_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^expected redis://HOST:PORT, .* or unix://PATH$"):
        redis_url(url)

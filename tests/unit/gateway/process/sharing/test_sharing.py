"""The account as it is written down, where it lies, and who is still there."""

import asyncio
import multiprocessing
import os

import pytest

from fairhit.dispatch import LedgerReport, SharedLedger
from fairhit.errors import ConfigError
from fairhit.gateway.process.sharing.ledger_exchange import Peers
from fairhit.gateway.process.sharing.ledger_format import read, write
from fairhit.gateway.process.sharing.ledger_stores import Busy, InRedis, SharedMemory

NOTHING = LedgerReport(charged={}, waiting={})


def quantum_of(client: str) -> int:
    return 100 * len(client)


def account() -> SharedLedger:
    accounts = SharedLedger()
    report = LedgerReport(charged={"b": 250}, waiting={(): ("a",), ("http://w:1", "é"): ("é",)})
    accounts.exchange("one", report, quantum_of)
    return accounts


def test_what_is_written_is_what_is_read() -> None:
    assert read(write(account())) == account()


@pytest.mark.parametrize("written", [None, b"", write(account())[:-5]])
def test_nothing_and_half_of_something_are_a_new_account(written: bytes | None) -> None:
    """A process that dies while it writes leaves half of one behind; the others go on."""
    assert read(written) == SharedLedger()


@pytest.mark.parametrize(
    "written",
    [b"[]", b"7", b'{"version":1}', b'{"version":2}', b'{"version":2,"deficits":[],"gateways":{}}',
     b'{"version":1,"deficits":{},"gateways":{}}', b'{"version":2,"deficits":{"a":"x"},"gateways":{}}'],
)  # fmt: skip
def test_what_others_have_written_is_left_alone(written: bytes) -> None:
    with pytest.raises(ValueError, match="shared ledger"):
        read(written)


def test_only_who_stands_still_is_silent() -> None:
    accounts, peers = account(), Peers("me")
    accounts.exchange("me", NOTHING, quantum_of)
    for now in (0.0, 0.6, 1.2):
        accounts.exchange("one", NOTHING, quantum_of)
        assert peers.silent(accounts, now) == []
    assert peers.silent(accounts, 2.0) == []
    assert peers.silent(accounts, 2.3) == ["one"]


def test_who_says_that_it_comes_rarely_is_waited_for() -> None:
    """An account that is long takes longer to exchange: five of its own exchanges, not of ours."""
    accounts, peers = account(), Peers("me")
    accounts.peers["one"].period_s = 0.5
    assert peers.silent(read(write(accounts)), 0.0) == []
    assert peers.silent(read(write(accounts)), 2.4) == []
    assert peers.silent(read(write(accounts)), 2.6) == ["one"]


def add_one(written: bytes | None) -> bytes:
    return str(int(written or b"0") + 1).encode()


def add(memory: SharedMemory, times: int) -> None:
    async def run() -> None:
        for _ in range(times):
            while True:
                try:
                    await memory.change(add_one)
                except Busy:
                    continue
                break

    asyncio.run(run())


def test_processes_change_the_memory_one_after_another() -> None:
    memory, fork = SharedMemory.create(), multiprocessing.get_context("fork")
    others = [fork.Process(target=add, args=(memory, 300)) for _ in range(3)]
    for other in others:
        other.start()
    add(memory, 300)
    for other in others:
        other.join()

    assert os.pread(memory.descriptor, 100, 0) == b"1200"


def test_who_dies_with_the_lock_lets_go_of_it() -> None:
    memory, fork = SharedMemory.create(), multiprocessing.get_context("fork")

    def die(written: bytes | None) -> bytes:
        os._exit(1)

    other = fork.Process(target=lambda: asyncio.run(memory.change(die)))
    other.start()
    other.join()
    add(memory, 1)

    assert os.pread(memory.descriptor, 100, 0) == b"1"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("ssl_foo=1", "there is no option 'ssl_foo'"),
        ("ssl_cert_reqs=perhaps", ".*perhaps"),
        ("ssl_ca_certs=/nowhere", "its certificates: No such file or directory"),
    ],
)
def test_options_of_tls_that_cannot_be_are_said_at_the_start(options: str, fault: str) -> None:
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    with pytest.raises(ConfigError, match=f"^--share-url: {fault}"):
        InRedis(f"rediss://127.0.0.1:1/0?{options}", "key")

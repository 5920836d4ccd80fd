"""CPU cost of the gateway's own code per request and per streamed event, without sockets.

Caveat first: the connections end in transports that discard what is written, so neither the
kernel nor uvloop is in these numbers; `benchmarks.gateway` has both. The rest varies by a few per cent
between runs, which is little enough to see where the time goes (`make compiled` runs it on
the compiled wheel):

    python -m benchmarks.micro.gateway_path [--shares]     # by function, from cProfile
    valgrind --tool=callgrind python -m benchmarks.micro.gateway_path --only "2 KB" --batches 1
"""

import asyncio
import cProfile
import gc
import pstats
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median
from sys import setprofile
from types import FrameType

from benchmarks.gateway import mock_engine
from benchmarks.gateway.load import requests
from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.engine_connection import EngineConnection
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import make

CLIENTS, ENGINES = 8, 2
REQUESTS, BATCHES = 200, 15
EVENTS = 50  # of each stream
# As the operating system gives them: an 80 KB body comes in two reads of uvloop's 64 KiB at most.
READ_LEN = 65_536


class Nowhere(asyncio.Transport):
    """Throws away what it is given, and notes that it was given something."""

    def __init__(self, used: list["Nowhere"]) -> None:
        super().__init__()
        self._used = used

    def write(self, data: object) -> None:
        self._used[0] = self

    def writelines(self, list_of_data: object) -> None:
        self._used[0] = self

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        raise AssertionError("nothing here ends a connection")

    abort = close


class Rig:
    """A gateway, one caller, and a connection to each of its engines, all of them in this process."""

    def __init__(self, queue: str) -> None:
        keys = [f"tenant-{n}:key-{n}" for n in range(CLIENTS)]
        settings = {"tenant_api_key": keys, "queue": queue}
        self.gateway = Gateway(make(settings, where="benchmark"))
        self.connections: dict[Nowhere, EngineConnection] = {}
        self.tokens = [mock_engine.token() for _ in range(EVENTS)]

    async def open(self) -> None:
        """Engines are known and up without having been asked."""
        gateway = self.gateway
        gateway._loop = asyncio.get_running_loop()
        self.used = [Nowhere([])]  # the transport written to last
        urls = [f"http://127.0.0.1:{number + 1}" for number in range(ENGINES)]
        for url in urls:
            gateway.pool.add(url)
        await gateway.pool.close()  # no probe may run
        for url in urls:
            gateway.dispatcher.engine_up(url, models=["mock"])
            engine, wire = gateway.pool.engine(url), Nowhere(self.used)
            engine._closed = False  # with the probes went the engines
            connection = EngineConnection(engine)
            connection.connection_made(wire)
            self.connections[wire] = connection
            engine.give_back(connection)
        self.caller = ClientConnection(gateway)
        self.caller.connection_made(Nowhere(self.used))
        gateway.read_budget._left = (
            1 << 60
        )  # the loop does not turn here, and nothing has to wait for it

    def ask(self, pieces: list[bytes]) -> EngineConnection:
        """A request arrives; the connection it went to."""
        for piece in pieces:
            self.caller.data_received(piece)
        return self.connections[self.used[0]]

    def whole(self, pieces: list[bytes]) -> None:
        self.ask(pieces).data_received(mock_engine.ANSWER_REPLY)

    def stream(self, pieces: list[bytes]) -> None:
        connection = self.ask(pieces)
        connection.data_received(mock_engine.STREAM_HEAD + self.tokens[0])
        for token in self.tokens[1:]:
            connection.data_received(token)
        connection.data_received(mock_engine.STREAM_END)


def cut(request: bytes) -> list[bytes]:
    return [request[at : at + READ_LEN] for at in range(0, len(request), READ_LEN)]


def cases(rig: Rig) -> dict[str, tuple[int, bool, Callable[[list[bytes]], None], int]]:
    """Name -> size of the body, streamed or not, what to do with it, what to divide by."""
    return {
        "2 KB": (2_048, False, rig.whole, 1),
        "80 KB": (81_920, False, rig.whole, 1),
        "streamed event": (2_048, True, rig.stream, EVENTS + 2),
    }


async def measure(
    only: str | None, queues: Sequence[str], batches: int, *, shares: bool, calls: bool
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for queue, name in product(queues, cases(Rig("engine")) if only is None else [only]):
        rig = Rig(queue)
        await rig.open()
        size, stream, serve, count = cases(rig)[name]
        source = requests(size, seed=1, clients=CLIENTS, stream=stream)
        made = [cut(next(source)) for _ in range(REQUESTS)]
        for pieces in made[: REQUESTS // 2]:
            serve(pieces)
        what = name if queue == "engine" else f"{name}, queueing"
        if shares:
            profile = cProfile.Profile()
            profile.runcall(lambda s=serve, m=made: [s(pieces) for pieces in m])
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            continue
        if calls:
            print(f"{what:24} {_calls(serve, made)}")
            continue
        spent = sorted(_batch(serve, made) / count for _ in range(batches))
        row = {"what": what, "us_min": round(spent[0], 1), "us_median": round(median(spent), 1)}
        print(f"{what:24} {row['us_min']:8} us at least, {row['us_median']:8} in the median")
        rows.append(row)
    return rows


def _calls(serve: Callable[[list[bytes]], None], made: list[list[bytes]]) -> str:
    """Calls of our functions per request, and the files that these are in; of the pure gateway only."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/fairhit/" in frame.f_code.co_filename:
            found[frame.f_code.co_filename] += 1

    setprofile(note)
    for pieces in made:
        serve(pieces)
    setprofile(None)
    often = sum(number >= len(made) / 2 for number in found.values())
    return f"{found.total() / len(made):.0f} calls through {often} files"


def _batch(serve: Callable[[list[bytes]], None], made: list[list[bytes]]) -> float:
    """CPU microseconds per request."""
    begun = time.process_time()
    for pieces in made:
        serve(pieces)
    return (time.process_time() - begun) / len(made) * 1e6


def main() -> None:
    """Measure, print, and write the rows of a complete run."""
    parser = OneLineParser(prog="benchmarks.micro.gateway_path")
    parser.add_argument("--shares", action="store_true", help="by function instead")
    parser.add_argument("--calls", action="store_true", help="Python calls and files instead")
    parser.add_argument("--queue", choices=["engine", "gateway"], help="default: both")
    parser.add_argument("--only", choices=["2 KB", "80 KB", "streamed event"])
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    gc.disable()
    queues = [options.queue] if options.queue else ["engine", "gateway"]
    kinds = {"shares": options.shares, "calls": options.calls}
    rows = asyncio.run(measure(options.only, queues, options.batches, **kinds))
    if not (options.only or options.queue or any(kinds.values()) or options.dry):
        write_rows("gateway_path", rows)


if __name__ == "__main__":
    main()

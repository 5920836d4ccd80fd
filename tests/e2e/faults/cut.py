"""A network of its own with a gateway, an engine beside it, and one at the far end of a cable that is pulled.

`unshare --user --map-root-user --net python -m tests.e2e.faults.cut FOLDER` prints what became of the
requests, as JSON. Nothing of the machine's own network is touched, and no rights are needed but this.
"""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts import install_programs

from fairhit.local.engine_process import free_ports
from tests.e2e.faults.crowd import Crowd, asking, mixed
from tests.e2e.faults.processes import EngineProcess, idle, retries
from tests.e2e.gateway.process import Process, running

IP = install_programs.find("ip") or "ip"
NEAR, FAR = "10.9.0.1", "10.9.0.2"
PLACES = 4
CALLERS = 24
TIMEOUTS = {
    "connect_timeout_secs": 2.0,
    "health_check_interval_secs": 0.2,
    "health_check_timeout_secs": 1.5,
    "first_byte_timeout_secs": 2.0,
    "idle_timeout_secs": 2.0,
}


def ip(*arguments: str) -> None:
    subprocess.run([IP, *arguments], check=True)


class Cable:
    """A pair of interfaces; the far one is in a namespace that the process `holder` keeps."""

    def __init__(self, holder: int) -> None:
        self.inside = ("nsenter", "--target", str(holder), "--net")
        ip("link", "set", "lo", "up")
        ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(holder))
        ip("addr", "add", f"{NEAR}/30", "dev", "near")
        ip("link", "set", "near", "up")
        self.far("addr", "add", f"{FAR}/30", "dev", "far")
        self.join()

    def far(self, *arguments: str) -> None:
        subprocess.run([*self.inside, IP, *arguments], check=True)

    def cut(self) -> None:
        """What is sent goes nowhere, and no packet says so."""
        self.far("link", "set", "far", "down")

    def join(self) -> None:
        self.far("link", "set", "far", "up")


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """Between this namespace and one that is made."""
    command = ["unshare", "--net", "sh", "-c", "echo made; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"made\n"
        try:
            yield Cable(holder.pid)
        finally:
            holder.kill()


async def story(folder: Path, line: Cable) -> dict[str, object]:
    """Cut, work on without the far engine, join, and work on with it."""
    here, there = free_ports(2)
    flags = ("--places", str(PLACES))
    near = EngineProcess(here, *flags)
    far = EngineProcess(there, *flags, host=FAR, inside=line.inside)
    try:
        await asyncio.gather(near.start(), far.start())
        async with (
            running(folder, worker_urls=[near.url, far.url], **TIMEOUTS) as process,
            asking(process.port, mixed(random.Random(6)), callers=CALLERS) as crowd,
        ):
            did = await cut_and_join(line, far, process, crowd)
            retried = await retries(process)
        await idle(far)  # as soon as TCP has tried again, and learnt that no process listens
        return {**crowd.census.row(), **did, "retried": retried, "seen": str(crowd.census)}
    finally:
        near.kill()
        far.kill()


async def cut_and_join(
    line: Cable, far: EngineProcess, process: Process, crowd: Crowd
) -> dict[str, int]:
    await process.says(f"{far.url} is up")
    await crowd.more(100)
    line.cut()
    await process.says(f"{far.url} is down")
    await asyncio.sleep(TIMEOUTS["idle_timeout_secs"])  # sooner, and TCP mends what was begun
    before = crowd.census.offered
    line.join()
    await process.says(f"{far.url} is up", times=2)
    received = (await far.census())["received"]
    await crowd.more(200)
    again = (await far.census())["received"] - received
    return {"before it was joined": before, "far after that": again}


def main() -> None:
    with cable() as line:
        print(json.dumps(asyncio.run(story(Path(sys.argv[1]), line))))  # noqa: T201  its result


if __name__ == "__main__":
    main()

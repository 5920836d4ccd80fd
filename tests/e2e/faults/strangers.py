"""Clients who ask once and are never seen again, as many as wanted, from an engine that answers at once."""

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.gateway.load import Load

from fairhit.local.engine_process import free_ports
from tests.e2e.deploy.processes import status_of, until
from tests.e2e.faults.caller import HOST
from tests.e2e.faults.processes import ROOT, rss_mb
from tests.e2e.gateway.process import Process

# DESIGN's bound on what is kept for a client: a million of them in a gibibyte.
CLIENT_BYTES = 1074
# The first fill what is bounded anyway.
_FIRST, _BATCH = 5_000, 5_000
# Clients that have a name of their own in the metrics; the others share one.
NAMED, COUNTED = 1_000, "fairhit_requests_total{"
SETTINGS = {"trust_tenant_header": True, "max_tree_size": 1_000}


def one_each(number: int) -> bytes:
    """The request of a client that asks once."""
    body = b'{"model":"mock","messages":[{"role":"user","content":"%d"}],"max_tokens":1}' % number
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"x-smg-tenant-id: client-%d\r\ncontent-length: %d\r\n\r\n" % (number, len(body))
    ) + body


@contextlib.contextmanager
def quick_engine() -> Iterator[str]:
    """One that answers at once; its URL."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.gateway.mock_engine", str(port)]
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            until(lambda: status_of(port, "/health") == 200)
            yield f"http://{HOST}:{port}"
        finally:
            child.kill()


async def pass_by(process: Process, count: int) -> float:
    """Ask for so many, each its own client; bytes that each left behind in the gateway."""
    load = await Load(process.port, (one_each(number) for number in itertools.count())).connect(16)
    await load.closed_loop(_FIRST)
    before = rss_mb(process.pid)
    for _ in range(count // _BATCH):
        await load.closed_loop(_BATCH)
    left_mb = rss_mb(process.pid) - before
    load.close()
    page = (await process.ask("/metrics")).body.decode()
    counts = [line.split() for line in page.splitlines() if line.startswith(COUNTED)]
    assert sum(float(number) for _, number in counts) == count + _FIRST
    assert len(counts) <= NAMED + 1
    return left_mb * 1e6 / count

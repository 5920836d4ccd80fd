"""The gateway as it is measured: keys, a place for the queue, and mock engines on the given ports."""

import sys

from fairhit.gateway.process.main import run
from fairhit.gateway.settings import make

CLIENTS = 8

if __name__ == "__main__":
    queue, port, *engines = sys.argv[1:]
    sys.exit(
        run(
            make(
                {
                    "queue": queue,
                    "port": int(port),
                    "worker_urls": [f"http://127.0.0.1:{engine}" for engine in engines],
                    "tenant_api_key": [f"tenant-{n}:key-{n}" for n in range(CLIENTS)],
                },
                where="benchmark",
            )
        )
    )

"""The gateway as it is measured by `worst_inputs`: without keys, before one mock engine."""

import sys

from fairhit.gateway.process.main import run
from fairhit.gateway.settings import make

if __name__ == "__main__":
    port, engine = map(int, sys.argv[1:])
    urls = [f"http://127.0.0.1:{engine}"]
    settings = {"port": port, "worker_urls": urls, "log_level": "error"}
    sys.exit(run(make(settings, where="benchmark")))

"""`fairhit serve` as a process: it says how to use it, and kill -9 leaves nothing of it behind."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from openai import OpenAI

from fairhit.local.engine_process import free_ports

pytestmark = pytest.mark.e2e

START_TIMEOUT_S = 300
# The guard's 8 s for an engine that receives nothing, and room for a slow machine.
GONE_WITHIN_S = 30


@pytest.fixture
def command() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One engine is enough here; what was printed until everything answered."""
    (port,) = free_ports(1)
    arguments = ["serve", "--engines", "1", "--port", str(port), "--tenant-api-key", "a:key-of-a"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairhit", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = ""
    until = time.monotonic() + START_TIMEOUT_S
    while "Ctrl-C stops everything" not in said:
        line = process.stdout.readline()
        assert line, (process.wait(), said)
        assert time.monotonic() < until, said
        said += line
    yield process, said
    process.kill()
    process.wait()


def test_it_says_how_to_use_it_and_leaves_nothing_behind(
    command: tuple[subprocess.Popen[str], str],
):
    process, said = command
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 5  # two guards, the engine's server and its core, the gateway

    # The examples are run as they are printed, but for the key, of which only a digest is kept.
    said = said.replace("YOUR_KEY", "key-of-a")
    curl = said[said.index("curl ") : said.index("from openai")]
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    assert '"object":"chat.completion"' in answer.stdout
    python = said[said.index("from openai") : said.index("The demo model")]
    assert subprocess.run([sys.executable, "-c", python], check=True).returncode == 0
    url = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert url is not None
    assert OpenAI(base_url=f"{url[0]}/v1", api_key="key-of-a").models.list().data[0].id == "demo"

    process.kill()
    _, alive = psutil.wait_procs(family, timeout=GONE_WITHIN_S)
    assert alive == []

"""`pip install '.[gateway]'` compiles: it simulates to the same bytes as the sources do, and forwards."""

import asyncio
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.gateway.process import running
from tests.e2e.gateway.scripts import chat, good
from tests.e2e.gateway.world import CHAT, FakeEngine
from tests.e2e.wheel import fresh
from tests.e2e.wheel.fresh import ROOT

EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.e2e

# Between them: every host, late binding, a lost worker, cancellations, programs, preemption.
RUNS = (
    ("two-tenants.jsonl", "--max-running", "8"),
    ("two-tenants.jsonl", "--scheduler", "vtc", "--host", "artifact"),
    ("tiers.jsonl", "--scheduler", "drr", "--replicas", "2", "--router", "preble"),
    ("tiers.jsonl", "--host", "vllm", "--kv-tokens", "4000", "--replicas", "2"),
    ("judge.jsonl", "--host", "sglang", "--scheduler", "lpm"),
    ("chat.jsonl", "--replicas", "3", "--event-delay", "0.1", "--fail", "1@20", "--join", "1@40"),
    ("chat.jsonl", "--replicas", "2", "--router", "central-dlpm"),
    ("tree-of-thoughts.jsonl.gz", "--scheduler", "preble-groups", "--kv-tokens", "20000"),
)


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory):
    """The Python of an environment that only the documented command has installed into, in isolation."""
    python, said = fresh.install(tmp_path_factory.mktemp("fresh") / "env")
    wheels = re.findall(r"Created wheel for fairhit(?:-lab)?: filename=(\S+)", said)
    assert len(wheels) == 2
    assert not any("-none-any" in wheel for wheel in wheels), wheels
    return python


@pytest.fixture(scope="module")
def installed(fresh_python, tmp_path_factory):
    """A folder with what the command installed of fairhit, and nothing of what else it did."""
    folder = tmp_path_factory.mktemp("installed")
    packages = fresh.packages(fresh_python)
    own = packages / "fairhit", packages / "fairhit_lab"
    for path in (*own, *packages.glob("*__mypyc*.so")):
        (folder / path.name).symlink_to(path)
    return folder


def python(installed, *arguments):
    """What Python prints with the wheel (None: the sources) in front of its path."""
    path = str(installed or ROOT / "src")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_costs_time_is_compiled(installed):
    code = (
        "from fairhit.core import fair_queue\n"
        "from fairhit.core.cache import radix_tree, trie\n"
        "from fairhit.core.waiting import index\n"
        "from fairhit.dispatch import dispatcher, queue\n"
        "from fairhit.gateway.api import response_body\n"
        "from fairhit.gateway.http import client_connection, engine_connection, request_parser\n"
        "from fairhit.gateway.proxy import admission, exchange\n"
        "from fairhit.policies import dlpm\n"
        "from fairhit.routers.prefix_index import approximate\n"
        "from fairhit_lab.sim import replica\n"
        "for one in (fair_queue, radix_tree, trie, index, dlpm, replica, approximate, dispatcher, queue, "
        "response_body, client_connection, exchange, admission, request_parser, engine_connection): "
        "print(one.__file__)"
    )

    assert all(line.endswith(".so") for line in python(installed, "-c", code).splitlines())
    assert not any(line.endswith(".so") for line in python(None, "-c", code).splitlines())


def test_the_fresh_environment_serves_and_says_that_it_is_compiled(fresh_python, tmp_path):
    """With nothing installed but what the command's extra names."""

    async def story() -> None:
        engine = await FakeEngine(good).start()
        async with running(
            tmp_path, {"PYTHONPATH": ""}, python=str(fresh_python), worker_urls=[engine.url]
        ) as process:
            reply = await process.ask(CHAT, chat(stream=True))
            assert reply.status == 200 and reply.body.endswith(b"[DONE]\n\n")
            assert "fairhit is compiled" in process.said

    asyncio.run(story())
    assert fresh.output(fresh_python, "-m", "fairhit", "--version").endswith("(compiled)\n")


def test_a_source_distribution_installs_where_nothing_compiles(tmp_path):
    """Pure Python, and it says why."""
    backend = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import build_backend as b; "
    )
    code = backend + f"print(b.build_sdist({str(tmp_path)!r}))"
    source = fresh.output(Path(sys.executable), "-c", code).strip()
    wheel = ("-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(tmp_path / source))
    fresh.output(Path(sys.executable), *wheel, CC="no-such-compiler")
    (made,) = tmp_path.glob("fairhit-*-py3-none-any.whl")
    where = tmp_path / "unpacked"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(where)

    printed = python(where, "-m", "fairhit", "--version")

    assert printed.endswith("(pure Python: no C compiler (no-such-compiler))\n"), printed


@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_compiled_and_not_a_simulation_writes_the_same_bytes(installed, tmp_path, arguments):
    trace, *flags = arguments
    written = []
    for where, source in (("compiled", installed), ("sources", None)):
        events, summary = tmp_path / f"{where}.jsonl", tmp_path / f"{where}.json"
        command = ["-m", "fairhit", "simulate", str(EXAMPLES / trace), *flags]
        python(source, *command, "--events", str(events), "--summary", str(summary))
        skipped = tmp_path / f"{where} skipped.json"
        python(source, *command, "--summary", str(skipped))
        written.append((events.read_bytes(), summary.read_bytes(), skipped.read_bytes()))

    assert written[0] == written[1]
    assert len(written[0][0]) > 10_000


GATEWAY = """
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText
from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, TicketState, Usage
from fairhit.errors import NotFound
from fairhit.routers.d2lpm import D2LPM

sent = []
dispatcher = Dispatcher(
    router=D2LPM(), index=ApproximatePrefixIndex(), rules=QueueRules(max_engine_requests=3),
    on_ready=sent.append,
)
for name in ("w0", "w1", "w2"):
    dispatcher.engine_up(name, models=["m"])
for number in range(300):
    text = b"%d" % (number % 7) * 1500 + b"%d" % number * 300
    request = Request(
        id=str(number), client="abc"[number % 3], prompt=ChunkedText().extended(text).chunks,
        input_len=600, max_tokens=50, order=number,
    )
    ticket = dispatcher.arrive(request, model="m", text_len=len(text), streams=bool(number % 2))
    if ticket.state is TicketState.WAITING:
        sent.append(ticket)
    while sent and (number == 299 or len(dispatcher.queue) > 20):
        first = sent.pop(0)
        if first.streams:
            dispatcher.started(first)
        dispatcher.finished(first, Usage(580, 20 + number % 9, 256), ran_us=1)
        print(first.request.id, first.worker, first.final_len, len(dispatcher.queue))
try:
    dispatcher.arrive(request, model="n", text_len=1)
except NotFound as error:
    print(error)
print(list(dispatcher.ledger.accounts()))
"""


def test_compiled_and_not_the_gateway_sends_the_same_requests_to_the_same_engines(installed):
    printed = python(installed, "-c", GATEWAY)

    assert printed == python(None, "-c", GATEWAY)
    assert len(printed.splitlines()) == 302


# What a request passes through, alone and between sockets.
PARTS = (
    "auth/test_access_control", "http/test_response_parser", "api/test_response_body", "proxy/test_exchange",
    "auth/test_identity", "api/test_request_body", "http/test_head_cache", "http/test_request_parser",
    "prefix/test_segments", "http/test_engine_connection",
)  # fmt: skip
GATEWAY_TESTS = (
    *(f"tests/unit/gateway/{part}.py" for part in PARTS),
    "tests/e2e/gateway/test_forwarding.py",
)

# What engines bring of their own: caches, queues and requests of other classes than ours.
PLUG_IN_TESTS = tuple(
    f"tests/unit/engines/{part}.py"
    for part in (
        "vllm/test_adapters",
        "vllm/test_blocked",
        "vllm/test_block_view",
        "vllm/test_loading_adapters",
        "vllm/test_scheduler",
        "vllm/test_unseen",
        "sglang/test_audit",
        "sglang/test_followers",
        "sglang/test_full_queue",
        "sglang/test_queue_adapter",
    )
)


@pytest.mark.parametrize("tests", [GATEWAY_TESTS, PLUG_IN_TESTS], ids=["gateway", "plug-ins"])
def test_compiled_it_passes_its_tests(installed, tests):
    """Also those that play an engine, a caller or a clock to a compiled class.

    The plug-ins once were refused by every compiled policy: their caches are not of the class it named.
    """
    printed = python(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)

    assert " passed" in printed and "skipped" not in printed, printed


def test_settings_can_be_sent_to_another_process(installed):
    code = (
        "import pickle\n"
        "from fairhit.core.costs import parse_cost\n"
        "from fairhit_lab.sim.config import SimConfig, WorkerChange\n"
        "change = WorkerChange(time_us=1, worker=0, up=False)\n"
        "config = SimConfig(cost=parse_cost('profiled'), changes=(change,))\n"
        "assert pickle.loads(pickle.dumps(config)) == config\n"
    )

    assert python(installed, "-c", code) == ""


def test_a_wrong_setting_is_one_clear_line_there_too(installed):
    code = (
        "from fairhit.core.cache.radix_tree import RadixTree\n"
        "from fairhit.errors import ConfigError\n"
        "from fairhit.policies import make_policy\n"
        "try:\n"
        "    make_policy('dlpm', cache=RadixTree(), quantum='many')\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )

    (line,) = python(installed, "-c", code).splitlines()

    assert "dlpm" in line and "quantum" in line and "'many'" in line

"""The compiled wheel is built for real: it simulates to the same bytes as the sources do, and forwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
def installed(tmp_path_factory):
    """The folder that the wheel was installed into."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    environment = {**os.environ, "HATCH_BUILD_HOOKS_ENABLE": "1"}
    subprocess.run(
        [*pip, "wheel", "--no-deps", "-w", str(folder), str(ROOT)], check=True, env=environment
    )
    (wheel,) = folder.glob("fairlead-*.whl")
    assert "-none-any" not in wheel.name, "it is for this Python and machine"
    target = folder / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), str(wheel)], check=True)
    return target


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
        "from fairlead.core import chunk_index, scheduler, radix_tree, waiting, fleet_tree\n"
        "from fairlead.dispatch import dispatcher, queueing\n"
        "from fairlead.gateway import answers, caller, exchange, intake, requests, upstream\n"
        "from fairlead.schedulers import dlpm\n"
        "from fairlead.sim import replica\n"
        "for one in (scheduler, radix_tree, waiting, fleet_tree, dlpm, replica, chunk_index, dispatcher, "
        "queueing, answers, caller, exchange, intake, requests, upstream): print(one.__file__)"
    )

    assert all(line.endswith(".so") for line in python(installed, "-c", code).splitlines())
    assert not any(line.endswith(".so") for line in python(None, "-c", code).splitlines())


@pytest.mark.parametrize("arguments", RUNS, ids=" ".join)
def test_compiled_and_not_a_simulation_writes_the_same_bytes(installed, tmp_path, arguments):
    trace, *flags = arguments
    written = []
    for where, source in (("compiled", installed), ("sources", None)):
        events, summary = tmp_path / f"{where}.jsonl", tmp_path / f"{where}.json"
        command = ["-m", "fairlead", "simulate", str(EXAMPLES / trace), *flags]
        python(source, *command, "--events", str(events), "--summary", str(summary))
        skipped = tmp_path / f"{where} skipped.json"
        python(source, *command, "--summary", str(skipped))
        written.append((events.read_bytes(), summary.read_bytes(), skipped.read_bytes()))

    assert written[0] == written[1]
    assert len(written[0][0]) > 10_000


GATEWAY = """
from fairlead.core.chunk_index import ChunkedText, ChunkIndex
from fairlead.core.request import Request
from fairlead.dispatch import Dispatcher, QueueRules, State, Usage
from fairlead.errors import NotFound
from fairlead.routers.d2lpm import D2LPM

sent = []
dispatcher = Dispatcher(
    router=D2LPM(), index=ChunkIndex(), rules=QueueRules(window=3), on_ready=sent.append
)
for name in ("w0", "w1", "w2"):
    dispatcher.worker_up(name, models=["m"])
for number in range(300):
    text = b"%d" % (number % 7) * 1500 + b"%d" % number * 300
    request = Request(
        id=str(number), client="abc"[number % 3], prompt=ChunkedText().extended(text).chunks,
        input_len=600, max_tokens=50, order=number,
    )
    ticket = dispatcher.arrive(request, model="m", text_len=len(text), streams=bool(number % 2))
    if ticket.state is State.WAITING:
        sent.append(ticket)
    while sent and (number == 299 or len(dispatcher.queueing) > 20):
        first = sent.pop(0)
        if first.streams:
            dispatcher.started(first)
        dispatcher.finished(first, Usage(580, 20 + number % 9, 256), ran_us=1)
        print(first.request.id, first.worker, first.settled_len, len(dispatcher.queueing))
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
    "admission", "answer_reader", "answers", "exchange", "identity", "openai", "repeated", "requests",
    "segments", "upstream",
)  # fmt: skip
GATEWAY_TESTS = (
    *(f"tests/unit/gateway/test_{part}.py" for part in PARTS),
    "tests/e2e/gateway/test_forwarding.py",
)


def test_compiled_the_gateway_passes_its_tests(installed):
    """Also those that play an engine, a caller or a clock to a compiled class."""
    told = python(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *GATEWAY_TESTS)

    assert " passed" in told and "skipped" not in told, told


def test_settings_can_be_sent_to_another_process(installed):
    code = (
        "import pickle\n"
        "from fairlead.core.costs import parse_cost\n"
        "from fairlead.sim.config import Change, SimConfig\n"
        "change = Change(time_us=1, worker=0, up=False)\n"
        "config = SimConfig(cost=parse_cost('profiled'), changes=(change,))\n"
        "assert pickle.loads(pickle.dumps(config)) == config\n"
    )

    assert python(installed, "-c", code) == ""


def test_a_wrong_setting_is_one_clear_line_there_too(installed):
    code = (
        "from fairlead.core.radix_tree import RadixTree\n"
        "from fairlead.errors import ConfigError\n"
        "from fairlead.schedulers import make_policy\n"
        "try:\n"
        "    make_policy('dlpm', cache=RadixTree(), quantum='many')\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )

    (line,) = python(installed, "-c", code).splitlines()

    assert "dlpm" in line and "quantum" in line and "'many'" in line

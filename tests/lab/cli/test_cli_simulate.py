"""`fairhit simulate` as its user meets it: files out, one line for what is wrong, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import jsonschema
import pytest

from fairhit.cli import main
from fairhit_lab.metrics.summary.report import schema_of_summary

LINES = """\
{"id":"1","client":"a","arrival":0,"prompt":[["A",10],["x",5]],"output_len":3}
{"id":"2","client":"b","arrival":0.5,"prompt":[["A",10],["y",5]],"output_len":2,"weight":2}
"""
SMALL = ["--step-time", "linear:1,0,0", "--kv-tokens", "100"]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(LINES)
    return str(path)


def test_events_and_a_summary_are_written(trace, tmp_path, capsys):
    events, summary = tmp_path / "events.jsonl", tmp_path / "summary.json"
    status = main(["simulate", trace, *SMALL, "--events", str(events), "--summary", str(summary)])

    assert status == 0
    emitted = [json.loads(line) for line in events.read_text().splitlines()]
    assert [(each["ev"], each["t"]) for each in emitted if each["ev"] in {"admit", "finish"}] == [
        ("admit", 0.0),
        ("admit", 1.0),
        ("finish", 3.0),
        ("finish", 3.0),
    ]
    assert emitted[4]["ev"] == "dispatch" and emitted[5]["ev"] == "enqueue"
    report = json.loads(summary.read_text())
    assert report["interrupted"] is False
    assert report["requests"]["finished"] == 2
    assert report["clients"]["b"]["weight"] == 2.0
    assert "2 requests: 2 finished" in capsys.readouterr().out


def test_skipping_or_not_the_summary_is_the_same(trace, tmp_path):
    made = []
    for more in ([], ["--no-skip"], ["--events", str(tmp_path / "e.jsonl.gz")]):
        path = tmp_path / "summary.json"
        assert main(["simulate", trace, *SMALL, "--summary", str(path), *more]) == 0
        made.append(path.read_bytes())

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--scheduler", "vtc"], None),
        (
            ["--scheduler", "vtc", "--misfit", "skip"],
            "a pass that stops at a request that does not fit",
        ),
        (["--scheduler", "dlpm", "--misfit", "skip"], None),
        (["--cost", "linear:1,1"], "linear cost"),
        (["--fail", "0@1", "--join", "0@2"], "workers that stay"),
        (["--scheduler", "fcfs"], "no theorem bounds the gaps of fcfs"),
    ],
)
def test_a_bound_is_shown_only_where_a_theorem_holds(flags, reason, trace, tmp_path):
    path = tmp_path / "summary.json"
    assert main(["simulate", trace, *SMALL, "--summary", str(path), *flags]) == 0
    said = json.loads(path.read_text())["gaps"]["no_bound_because"]

    assert said is None if reason is None else reason in said


def test_what_being_central_costs_is_in_the_summary(trace, tmp_path, capsys):
    """
    Two looks: each waits for 2 s there and back and 1 s of work. A message has 24 bytes; the prompts of
    15 tokens are in answers, and what is new of the first is in the second delta: 15 tokens and 12.
    """
    path = tmp_path / "summary.json"
    given = ["--router", "central-dlpm", "--central-round-trip", "2", "--central-work", "1"]
    assert main(["simulate", trace, *SMALL, *given, "--summary", str(path)]) == 0
    report = json.loads(path.read_text())

    jsonschema.Draft202012Validator(schema_of_summary()).validate(report)
    assert report["central"] == {
        "passes": 2,
        "changes": 1,
        "delta_bytes": 2 * 24 + 12 + 15 * 4,
        "answer_bytes": 2 * 24 + 2 * 15 * 4,
        "blocked_s": 6.0,
    }
    assert "2 passes, 120 bytes of deltas" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--central-round-trip", "--central-work"])
def test_what_a_central_answer_takes_is_a_setting_of_that_router_only(flag, trace, capsys):
    assert main(["simulate", trace, *SMALL, flag, "0.5"]) == 2
    assert f"{flag[2:]}: router d2lpm has no such setting" in capsys.readouterr().err


def test_requests_that_wait_for_a_worker_that_never_joins_are_counted_and_reported(
    tmp_path, capsys
):
    """
    The worker fails before 2 comes; 3 waits for 2; 1 had begun.
    """
    path, summary = tmp_path / "trace.jsonl", tmp_path / "summary.json"
    more = [{"arrival": 0}, {"arrival": 4}, {"arrival": 4, "after": ["2"]}]
    rows = [
        {"id": str(n), "client": "a", "prompt": [["A", 5]], "output_len": 9, **each}
        for n, each in enumerate(more, 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    given = [*SMALL, "--fail", "0@3", "--summary", str(summary)]
    assert main(["simulate", str(path), *given]) == 0
    requests = json.loads(summary.read_text())["requests"]
    assert (requests["total"], requests["unfinished"]) == (3, 3)
    said = capsys.readouterr().err
    assert "3 requests are unfinished" in said and said.count("\n") == 1


@pytest.mark.parametrize("host", ["ideal", "artifact", "vllm", "sglang"])
def test_every_host_serves_a_trace(host, trace, tmp_path):
    path = tmp_path / "summary.json"
    given = ["--host", host, "--kv-tokens", "5000", "--summary", str(path), "--replicas", "2"]

    assert main(["simulate", trace, *given]) == 0
    assert json.loads(path.read_text())["requests"]["finished"] == 2


def test_a_client_with_a_weight_that_never_comes_is_a_warning(trace, capsys):
    assert main(["simulate", trace, *SMALL, "--weights", "a=2,c=3"]) == 0
    assert capsys.readouterr().err == "fairhit: --weights: no request of 'c' came\n"


def test_what_does_something_is_let_through(trace):
    """A router counts the cost, too; and its settings may stand beside one replica."""
    routed = ["--scheduler", "lpm", "--cost", "linear:1,1", "--replicas", "2"]
    assert main(["simulate", trace, *SMALL, *routed]) == 0
    assert main(["simulate", trace, *SMALL, "--worker-quantum", "5", "--event-delay", "1"]) == 0
    assert main(["simulate", trace, *SMALL, "--max-misfits", "3"]) == 0


def test_the_page_s_example_shows_what_fairness_changes(tmp_path):
    """docs/reference/simulate.md: who asks for little waits for who asks for much, or does not."""
    example = Path(__file__).parents[3] / "examples" / "two-tenants.jsonl"
    path, first_s = tmp_path / "summary.json", {}
    for scheduler in ("fcfs", "dlpm"):
        flags = ["--max-running", "8", "--scheduler", scheduler, "--summary", str(path)]
        assert main(["simulate", str(example), *flags]) == 0
        first_s[scheduler] = json.loads(path.read_text())["clients"]["light"]["ttft"]["p95_s"]

    assert first_s["fcfs"] > 5 + first_s["dlpm"]
    assert first_s["fcfs"] > 4 * first_s["dlpm"]


def test_unused_kv_memory_costs_nothing(trace):
    """A billion tokens are 62.5 million blocks; a list of them would be gigabytes."""
    tracemalloc.start()
    assert main(["simulate", trace, "--host", "vllm", "--kv-tokens", "1000000000"]) == 0
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 100 * 2**20


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--fail", "x@3"], "--fail: expected W@T, a worker's number and seconds, got 'x@3'"),
        (["--fail", "1"], "--fail: expected W@T, a worker's number and seconds, got '1'"),
        (["--fail", "0@-1"], "--fail: 0@-1: expected seconds from 0 on"),
        (["--join", "0@1"], "--join 0@1: worker 0 is up then"),
        (["--weights", "a"], "--weights: expected CLIENT=WEIGHT,..., got 'a'"),
        (["--weights", ""], "--weights: expected CLIENT=WEIGHT,..., got ''"),
        (["--fail", "-1@3"], "--fail: expected one argument: W@T"),
        (["--seed", "x"], "--seed: expected a whole number, got 'x'"),
        (["--batch-tokens", "9"], "--batch-tokens: without effect, as host ideal computes"),
        (["--max-misfits", "9", "--host", "vllm"], "--max-misfits: without effect, as host vllm"),
        (
            ["--max-misfits", "9", "--misfit", "stop"],
            "--max-misfits: without effect, as the scheduling",
        ),
        (["--max-misfits", "9", "--scheduler", "vtc"], "--max-misfits: without effect, as the"),
        (
            ["--cost", "linear:1,1", "--scheduler", "lpm"],
            "--cost: without effect, as scheduler lpm",
        ),
        (
            ["--event-delay", "1", "--router", "preble", "--replicas", "2"],
            "--event-delay: without effect, as router preble does not read cache events",
        ),
        (["--weights", "a=1,a=2"], "--weights: client 'a' is there twice"),
        (["--weights", "a=-1"], "weight of client 'a': expected a positive number"),
        (["--replicas", "0"], "--replicas: expected a whole number from 1 to 10,000, got '0'"),
        (
            ["--replicas", "10001"],
            "replicas: expected a whole number from 1 to 10,000, got '10001'",
        ),
        (
            ["--kv-tokens", "1000000001"],
            "kv-tokens: expected a whole number from 1 to 1,000,000,000, got '1000000001'",
        ),
        (["--scheduler", "just"], "--scheduler: invalid choice: 'just'"),
        (["--router", "best"], "--router: invalid choice: 'best'"),
        (["--scheduler", "fcfs", "--quantum", "5"], "quantum: scheduler fcfs has no such setting"),
        (
            ["--scheduler", "vtc", "--overdraft", "5"],
            "overdraft: scheduler vtc has no such setting; expected with fair",
        ),
        (
            ["--scheduler", "fair", "--overdraft", "1025"],
            "overdraft: expected at most the quantum, 1024, got 1025",
        ),
        (
            ["--scheduler", "fair", "--cost", "context:2,1e300"],
            "--cost 'context:2,1e300': expected a price from 0 to 1,000,000",
        ),
        (["--scheduler", "fair", "--cost", "context:-2,0"], "got '-2'"),
        (["--scheduler", "fair", "--weights", "a=0"], "weight of client 'a': expected a positive"),
        (
            ["--router", "round-robin", "--min-match", "5"],
            "min-match: router round-robin has no such setting",
        ),
        (
            ["--router", "preble", "--worker-quantum", "5"],
            "worker-quantum: router preble has no such setting",
        ),
        (
            ["--join", "200000@1"],
            "--join 200000@1: expected a worker below 2, as many as ever join",
        ),
        (
            ["--scheduler", "fcfs", "--max-overtake", "5"],
            "max-overtake: scheduler fcfs has no such setting",
        ),
        (["--rpm-limit", "5"], "only with --scheduler rpm, got 'dlpm'"),
        (["--step-time", "fast"], "step-time: expected linear:... or GPU:MODEL, got 'fast'"),
        (["--step-time", "linear:1,0,0"], "kv-tokens: needed"),
        (["--jitter", "2"], "jitter: expected a share from 0 to 0.33, got 2.0"),
        (["--cost", "cheap"], "--cost: expected"),
        (["--event-delay", "soon"], "--event-delay: expected seconds from 0 on"),
        (["--admission", "artifact", "--host", "ideal"], "admission: host ideal has reserve only"),
        (["--constants", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--summary", "/nowhere/at/all"], "--summary: /nowhere/at/all"),
        (["--events", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_2(flags, complaint, trace, capsys):
    try:
        status = main(["simulate", trace, *flags])
    except SystemExit as stopped:
        status = stopped.code
    said = capsys.readouterr().err

    assert status == 2
    assert complaint in said and said.count("\n") == 1, said


def test_a_bad_line_of_the_trace_is_one_line_and_exit_2(trace, capsys):
    with open(trace, "a", encoding="utf-8") as file:
        file.write('{"id":"1","client":"a","arrival":9,"prompt":[],"output_len":3}\n')

    assert main(["simulate", trace, *SMALL]) == 2
    said = capsys.readouterr().err
    assert f"{trace}:3: " in said and said.count("\n") == 1


def test_ctrl_c_keeps_what_there_is(tmp_path):
    """
    A trace without end on standard input; after a while its reader is interrupted.
    """
    events, summary = tmp_path / "events.jsonl", tmp_path / "summary.json"
    code = (
        "import json, itertools\n"
        "try:\n"
        "    for n in itertools.count():\n"
        "        print(json.dumps({'id': str(n), 'client': 'a', 'arrival': n, 'prompt': [['A', 5]],"
        " 'output_len': 2}))\n"
        "except BrokenPipeError:\n"
        "    pass\n"
    )
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    endless = subprocess.Popen([sys.executable, "-c", code], **quiet)
    flags = [*SMALL, "--events", str(events), "--summary", str(summary)]
    simulation = subprocess.Popen(
        [sys.executable, "-m", "fairhit", "simulate", "-", *flags],
        stdin=endless.stdout,
        stdout=subprocess.DEVNULL,
        env={**os.environ},
    )
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size > 10**5 for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline and simulation.poll() is None
            time.sleep(0.05)
        simulation.send_signal(signal.SIGINT)
        assert simulation.wait(60) == 130
    finally:
        for process in (simulation, endless):
            process.kill()
            process.wait()
        endless.stdout.close()

    report = json.loads(summary.read_text())
    assert report["interrupted"] is True
    assert report["requests"]["finished"] > 0
    last = events.read_text().splitlines()[-1]
    assert json.loads(last)["ev"]

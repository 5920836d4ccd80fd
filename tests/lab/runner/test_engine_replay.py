"""A trace replayed against an engine: order, ids, and the events made of what it said."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from benchmarks.gpu import engine
from benchmarks.gpu.replay import FIRST_ID, Heard, Replay, Tokens, events_of, outcome_of

from fairhit.core.cache.token_runs import Runs
from fairhit.errors import EngineFailed
from fairhit_lab.studies.shared import measures
from fairhit_lab.traces.rows import row
from fairhit_lab.traces.write import write_trace
from fairhit_lab.workloads import GENERATORS

VOCABULARY = 500


class FakeEngine:
    """Answers every request with as many tokens as asked, one an event; `asked` are the bodies."""

    def __init__(self, *, short_by: int = 0, status: int = 200) -> None:
        self.asked: list[dict] = []
        self._short_by, self._status = short_by, status
        self._said = Random(7)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(0) or await self._head(reader):
            length = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
            body = json.loads(await reader.readexactly(length))
            body["head"] = head
            self.asked.append(body)
            self._answer(writer, body)
            await writer.drain()
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> str:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""

    def _answer(self, writer: asyncio.StreamWriter, body: dict) -> None:
        count = body["max_tokens"] - self._short_by
        body["said"] = [self._said.randrange(VOCABULARY) for _ in range(count)]
        events = [{"choices": [{"text": "", "token_ids": [token]}]} for token in body["said"]]
        usage = {
            "prompt_tokens": len(body["prompt"]),
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": 2},
        }
        texts = [json.dumps(each) for each in [*events, {"choices": [], "usage": usage}]] + [
            "[DONE]"
        ]
        whole = "".join(f"data: {text}\n\n" for text in texts).encode()
        writer.write(
            b"HTTP/1.1 %d OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b"
            % (self._status, len(whole), whole)
        )


def replayed(rows, engine, *, timeout_s=20.0):
    async def story():
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
        replay = Replay(
            rows, host="127.0.0.1", port=server.sockets[0].getsockname()[1], key="k",
            model="shape", tokens=Tokens(VOCABULARY, "space"), space="tot/7",
        )  # fmt: skip
        try:
            await replay.run(timeout_s)
        finally:
            server.close()
        return replay

    return asyncio.run(story())


def tree():
    """A small tree: two children, each with two, and so on."""
    settings = {"clients": 1, "branches": (2,), "question": (5,), "output": 3, "programs_each": 1}
    rows = list(GENERATORS["tot-s1"].rows(Random(0), **settings))
    return [type(each)(**{**_fields(each), "arrival_us": 0}) for each in rows]


def _fields(each):
    return {name: getattr(each, name) for name in type(each).__dataclass_fields__}


def test_children_continue_what_was_really_said():
    """Otherwise their prompts would miss the cache, and nothing would be shared but the question."""
    engine, rows = FakeEngine(), tree()

    replay = replayed(rows, engine)

    assert len(replay.finished) == len(rows) == 30
    texts = [[*body["prompt"], *body["said"]] for body in engine.asked]
    for each in rows:
        if each.after:
            body = next(b for b in engine.asked if _is_of(b, each, replay))
            assert any(body["prompt"][: len(text)] == text for text in texts)


def _is_of(body, each, replay):
    return body["prompt"] == replay._tokens.ids(each.prompt)


def test_a_request_says_who_asks_and_how_much():
    engine = FakeEngine()

    replayed(tree()[:1], engine)

    (body,) = engine.asked
    assert body["vllm_xargs"] == {"fair_client": "tot/7/c0"} and body["max_tokens"] == 3
    assert body["ignore_eos"] and body["return_token_ids"] and min(body["prompt"]) >= FIRST_ID
    assert body["head"].startswith("POST /v1/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer k" in body["head"]


def test_a_client_has_its_own_name_in_what_is_measured():
    replay = replayed(tree(), FakeEngine())

    clients = outcome_of(replay.finished, replay.begin_us).summary["clients"]
    assert list(clients) == ["c0"]


def rows_on(monkeypatch, fake, *flags):
    """Of the whole script, but for the engine."""

    @asynccontextmanager
    async def started(*_):
        server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1], "k"
        finally:
            server.close()

    async def story(options):
        return [row async for row in engine.runs(options, Path(), Path())]

    monkeypatch.setattr(engine, "engine", started)
    return asyncio.run(story(engine.parse(["--model", "toy", "--out", "x", *flags])))


def test_no_run_finds_the_counters_of_another(monkeypatch):
    """The same engine serves them all, and VTC and DLPM keep each client's service."""
    fake = FakeEngine()
    small = [f"{each}.{setting}" for each in ("tot-s1", "judge-s1")
             for setting in ("programs_each=1", "rates=50", "output=3")]  # fmt: skip

    rows = rows_on(
        monkeypatch, fake, "--policies", "vtc", "--workloads", "tot-s1", "judge-s1", "--seeds", "2",
        "--seconds", "2", "--set", *small,
    )  # fmt: skip

    spaces = [body["vllm_xargs"]["fair_client"].rpartition("/")[0] for body in fake.asked]
    order = ["warm-up", "tot-s1/0", "tot-s1/1", "judge-s1/0", "judge-s1/1"]
    assert list(dict.fromkeys(spaces)) == order
    assert [f"{row['workload']}/{row['seed']}" for row in rows] == order[1:]
    assert [row["requests"] for row in rows] == [spaces.count(space) for space in order[1:]]
    assert all(row["ttft_p99_s"] > 0 for row in rows)


def test_a_trace_file_is_a_workload_and_the_flooder_is_measured_apart(monkeypatch, tmp_path):
    """6 requests of `heavy`, those of `light` within 2 of 9 s; the model takes the longest prompt."""
    file = tmp_path / "flood.jsonl"
    sizes = {
        "requests": 6,
        "shared": 9000,
        "own": 8,
        "output_len": 3,
        "light_rate": 2,
        "duration": 9,
    }
    rows = list(GENERATORS["flood"].rows(Random(1), **sizes))
    with file.open("wb") as out:
        write_trace(rows, out)
    sent = [row for row in rows if row.arrival_us <= 2e6]
    flags = ("--policies", "fair", "--workloads", str(file), "--seeds", "1", "--seconds", "2")

    (row,) = rows_on(monkeypatch, FakeEngine(), *flags)

    assert row["workload"] == "flood.jsonl" and row["policy"] == "fair"
    assert row["requests"] == len(sent) > 6
    assert 0 < row["heavy_service_per_s"] < row["throughput"]
    assert engine.positions(engine.parse(["--out", "x", *flags])) == 9000 + 8 + 3


def test_each_workload_has_settings_of_its_own():
    options = engine.parse(["--out", "x", "--set", "tot-s2.rates=0.3,0.1", "tot-s2.clients=2"])

    assert options.settings == {
        "tot-s1": {"clients": 3, "rates": (0.12,)},
        "tot-s2": {"clients": 2, "rates": (0.3, 0.1)},
        "judge-s1": {"clients": 3, "rates": (0.5,)},
    }


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--set", "[1]"], "--set [1]: expected WORKLOAD.KEY=VALUE with a workload of tot-s1, tot-s2"),
        (["--set", "rates=1"], "--set rates=1: expected WORKLOAD.KEY=VALUE with a workload of"),
        (["--set", "tot-s1.rates=x"], "--set rates: expected numbers above 0 with commas between"),
        (["--set", "tot-s1.rate=1"], "--set rate=1: expected KEY=VALUE with a key of"),
        (["--workloads", "no-such"], "--workloads no-such: expected a file or one of alternate, arena"),
        (["--seeds", "0"], "--seeds: expected a number above 0, got 0"),
        (["--out", "/dev/null/x"], "--out: /dev/null/x"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_one_line(capsys, tmp_path, flags, line):
    status = engine.main(["--out", str(tmp_path), *flags])

    message = capsys.readouterr().err
    assert status == 2 and message.startswith(f"engine: {line}") and message.count("\n") == 1


def test_a_child_is_not_sent_before_its_parent_ended():
    replay = replayed(tree(), FakeEngine())

    ended = {each.row.id: each.pieces[-1][0] for each in replay.finished}
    for each in replay.finished:
        assert all(ended[parent] <= each.sent_us for parent in each.row.after)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (FakeEngine(short_by=1), "expected 3 tokens, got 2"),
        (FakeEngine(status=400), "status 400"),
    ],
)
def test_a_wrong_answer_ends_the_run(engine, said):
    with pytest.raises(EngineFailed, match=said):
        replayed(tree(), engine)


def test_an_engine_that_is_not_there_ends_the_run():
    replay = Replay(
        tree(), host="127.0.0.1", port=9, key="", model="", tokens=Tokens(50, ""), space=""
    )

    with pytest.raises(EngineFailed, match="cannot connect"):
        asyncio.run(replay.run(5))


def test_the_same_segment_is_the_same_text_only_within_a_run():
    one, other = Tokens(VOCABULARY, "a"), Tokens(VOCABULARY, "b")
    prompt, longer = Runs([("x", 0, 40)]), Runs([("x", 0, 60), ("y", 3, 5)])

    assert one.ids(prompt) == one.ids(longer)[:40]
    assert len(one.ids(longer)) == 65
    assert one.ids(prompt) != other.ids(prompt)


def test_what_was_said_takes_its_place():
    tokens = Tokens(VOCABULARY, "a")

    tokens.learn(Runs([("answer", 2, 3)]), [71, 72, 73])

    assert tokens.ids(Runs([("answer", 0, 6)]))[2:5] == [71, 72, 73]


def test_measures_read_what_was_heard():
    """Two clients at once, 10 tokens each; one had half of its prompt cached."""
    rows = [
        row(name, client=name, at_s=0, prompt=[(name, 20)], output_len=10, program=name)
        for name in ("a", "b")
    ]
    pieces = [(1_000_000 + 100_000 * place, 1) for place in range(10)]
    finished = [
        Heard(row=each, sent_us=500_000, pieces=pieces, prompt_len=20, cached_len=cached)
        for each, cached in zip(rows, (0, 10), strict=True)
    ]

    outcome = outcome_of(finished, 500_000)

    summary = measures.in_summary("hit_rate", "makespan_s", "throughput")
    assert summary["hit_rate"](outcome) == 0.25
    assert summary["makespan_s"](outcome) == pytest.approx(1.4)
    assert summary["throughput"](outcome) == pytest.approx(2 * (20 + 2 * 10) / 1.4, rel=1e-3)
    assert measures.ttft("p50_s")(outcome) == pytest.approx(0.5, rel=0.02)
    assert measures.program_completion("p99_s")(outcome) == pytest.approx(1.4, rel=0.02)
    events = events_of(finished, 500_000)
    assert [event.t_us for event in events] == sorted(event.t_us for event in events)
    assert {point.client for point in outcome.series} == {"a", "b"}

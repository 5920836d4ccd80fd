"""Access log and traces of requests, without prompts and keys."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fairhit.errors import ConfigError
from fairhit.gateway.observability.outbox import Outbox
from tests.e2e.gateway.scripts import break_off, chat, good, hang
from tests.e2e.gateway.world import CHAT, World, eventually, play

SECRET = "the words of a prompt"
MESSAGES = [{"role": "user", "content": SECRET}]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def logged(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_request_is_a_line(tmp_path):
    """Streamed, whole, refused without a key, unknown model, left: five lines, and none for /health."""
    log = tmp_path / "access.log"

    async def story(world: World) -> None:
        key = {"authorization": "Bearer its-key"}
        ask = chat(messages=MESSAGES, stream=True)
        await world.ask(body=ask, x_request_id="abc-1", **key)
        await world.ask(body=chat(messages=MESSAGES), **key)
        await world.ask(body=chat(messages=MESSAGES))
        await world.ask(body=chat(model="unknown"), **key)
        await world.get("/health")

    play(story, good, access_log=str(log), tenant_api_key=("gold:its-key",))
    lines = logged(log)

    assert [line["status"] for line in lines] == [200, 200, 401, 404]
    assert [line["client"] for line in lines] == ["gold", "gold", None, "gold"]
    first, second, third, _ = lines
    assert first["id"] == "abc-1" and second["id"] is None
    assert first["model"] == "m" and first["worker"].startswith("http://127.0.0.1:")
    assert (first["extend_tokens"], first["cached_tokens"], first["output_tokens"]) == (18, 32, 3)
    assert 0 <= first["wait_s"] <= first["ttft_s"] <= first["duration_s"] < 5
    assert second["ttft_s"] is None and third["duration_s"] is None
    text = log.read_text(encoding="utf-8")
    assert SECRET not in text and "its-key" not in text


def test_the_id_is_in_the_headers_that_are_named_for_it(tmp_path):
    """Also the one that the gateway made, and that of a request that was refused."""
    log = tmp_path / "access.log"
    echoed: list[str] = []

    async def story(world: World) -> None:
        for headers in ({"x_trace": "one"}, {"x_other": "two"}, {"x_request_id": "no"}, {}):
            echoed.append((await world.ask(**headers, authorization="Bearer k")).headers["x-trace"])
        echoed.append((await world.ask()).headers["x-trace"])

    names = ("x-trace", "x-other")
    play(story, good, access_log=str(log), request_id_headers=names, tenant_api_key=("a:k",))

    assert echoed[:2] == ["one", "two"]
    assert [line["id"] for line in logged(log)] == echoed


def test_a_caller_that_leaves_and_an_engine_that_breaks_are_lines_too(tmp_path):
    log = tmp_path / "access.log"

    async def leaving(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: bool(world.received()))
        caller.reset()
        await eventually(world.engines[0].left.is_set)

    play(leaving, hang, access_log=str(log))

    async def breaking(world: World) -> None:
        assert (await world.ask()).status == 502

    play(breaking, break_off, access_log=str(log))

    left, broken = logged(log)
    assert (left["status"], broken["status"]) == (499, 502)
    # The engine had the prompt of the one that left, and can have computed it; the other's failed.
    assert left["extend_tokens"] > 0 and broken["extend_tokens"] == 0


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path):
    """As logrotate does: move, then SIGHUP. What was asked before is in the old file."""
    log, old = tmp_path / "access.log", tmp_path / "access.log.1"

    async def story(world: World) -> None:
        await world.ask(x_request_id="before")
        await eventually(lambda: b"before" in log.read_bytes())
        log.rename(old)
        world.gateway.reopen()
        await world.ask(x_request_id="after")

    play(story, good, access_log=str(log))

    assert [line["id"] for line in logged(old)] == ["before"]
    assert [line["id"] for line in logged(log)] == ["after"]


def test_a_log_that_cannot_be_is_said_at_the_start(tmp_path):
    async def story(world: World) -> None:
        raise AssertionError("it does not start")

    with pytest.raises(ConfigError, match=r"--access-log: .*No such file"):
        play(story, good, access_log=str(tmp_path / "nowhere" / "access.log"))


def test_what_cannot_be_written_is_dropped_and_counted():
    """A disk that is full, then not; memory does not grow meanwhile."""
    written: list[int] = []
    full = True

    def write(batch: list[int]) -> None:
        if full:
            raise OSError("no space left")
        written.extend(batch)

    async def story() -> None:
        nonlocal full
        outbox: Outbox[int] = Outbox(write, most=3)
        for number in range(5):
            outbox.add(number)
        assert outbox.dropped == 2
        outbox.flush()
        await eventually(lambda: outbox.dropped == 5)
        full = False
        outbox.add(7)
        await outbox.close()

    asyncio.run(story())
    assert written == [7]


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.headers["content-encoding"], body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.received = []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def spans(server: ThreadingHTTPServer) -> list:
    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    found = []
    for encoding, body in server.received:
        assert encoding is None
        request = trace.ExportTraceServiceRequest.FromString(body)
        for one in request.resource_spans:
            for scope in one.scope_spans:
                found.extend(scope.spans)
    return found


def contexts(world: World) -> list[str]:
    heads = [received.head.lower() for received in world.received()]
    return [head.split("traceparent: ")[1].split("\r\n")[0] for head in heads]


def test_a_request_in_a_trace_is_three_spans_of_it(collector):
    """The client's context is continued: the engine's span is a child of the gateway's, by its header."""
    pytest.importorskip("opentelemetry.sdk")
    sent: list[str] = []

    async def story(world: World) -> None:
        body = chat(messages=MESSAGES, stream=True)
        await world.ask(body=body, traceparent=TRACEPARENT)
        await world.ask(body=body, traceparent=TRACEPARENT[:-1] + "0")
        sent.extend(contexts(world))

    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    play(story, good, otlp_traces_endpoint=endpoint, trace_ratio=1.0)
    root, wait, engine = spans(collector)

    _, trace_id, caller, _ = TRACEPARENT.split("-")
    assert {span.trace_id.hex() for span in (root, wait, engine)} == {trace_id}
    assert root.parent_span_id.hex() == caller
    assert wait.parent_span_id == engine.parent_span_id == root.span_id
    assert [root.name, wait.name, engine.name] == ["POST chat", "wait", "engine"]
    assert root.start_time_unix_nano == wait.start_time_unix_nano
    assert wait.end_time_unix_nano == engine.start_time_unix_nano <= root.end_time_unix_nano
    # Not sampled by its caller: passed on as it came, and not sent anywhere.
    assert sent == [f"00-{trace_id}-{engine.span_id.hex()}-01", TRACEPARENT[:-1] + "0"]
    assert SECRET.encode() not in collector.received[0][1]


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_request_without_a_trace_begins_one_and_a_share_is_sent(collector, ratio):
    pytest.importorskip("opentelemetry.sdk")
    sent: list[str] = []

    async def story(world: World) -> None:
        await world.ask()
        await world.ask(traceparent="nonsense")
        sent.extend(contexts(world))

    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    play(story, good, otlp_traces_endpoint=endpoint, trace_ratio=ratio)

    assert len({context.split("-")[1] for context in sent}) == 2
    assert {context[-2:] for context in sent} == {"01" if ratio else "00"}
    assert len(spans(collector)) == (6 if ratio else 0)


def test_without_tracing_the_context_is_a_header_like_others():
    sent: list[str] = []

    async def story(world: World) -> None:
        await world.ask(traceparent=TRACEPARENT)
        sent.extend(contexts(world))

    play(story, good)

    assert sent == [TRACEPARENT]

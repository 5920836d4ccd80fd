"""What engines' metrics say of their load, and that asking for it opens no connection each time."""

import asyncio
import logging
from contextlib import nullcontext, suppress

import pytest

from fairlead.core.chunk_index import ChunkIndex
from fairlead.dispatch import Dispatcher, QueueRules
from fairlead.errors import EngineFailed
from fairlead.gateway.loads import Load, Loads, has_plug_in, read_load
from fairlead.gateway.probe import Probe
from fairlead.gateway.upstream import Engine
from fairlead.routers.d2lpm import D2LPM

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1e1
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 77.0
"""
SGLANG = b"# TYPE\nsglang:num_running_reqs 2.0\nsglang:num_queue_reqs 1.0"


@pytest.mark.parametrize(
    ("body", "load"),
    [
        (VLLM, Load(running=13, waiting=4)),
        (SGLANG, Load(running=2, waiting=1)),
        (VLLM.replace(b"\n", b"\r\n"), Load(running=13, waiting=4)),
        (VLLM.replace(b"vllm:num_requests_waiting{", b"vllm:of_another{"), None),
        (VLLM.replace(b"1e1", b"1e.1"), None),
        (VLLM.replace(b"1e1", b"1e10"), None),
        (VLLM.replace(b"1e1", b"NaN"), Load(running=3, waiting=4)),
        (b"# HELP\nnot_vllm:num_requests_running 3.0\nnot_vllm:num_requests_waiting 3.0", None),
        (b"", None),
    ],
)
def test_a_load_is_the_sum_over_an_engine_s_ranks(body: bytes, load: Load | None) -> None:
    assert read_load(body) == load


@pytest.mark.parametrize(
    ("body", "is_ours"),
    [
        (b'# TYPE\nfairlead_refill_rounds_total{engine="0"} 5.0\n', True),
        (b"# TYPE\nfairlead_cut_looks 5.0\n", True),
        (VLLM, False),
        (b"# HELP fairlead_cut_looks of another\n", False),
    ],
)
def test_the_plug_in_is_known_by_what_only_it_counts(body: bytes, is_ours: bool) -> None:
    assert has_plug_in(body) == is_ours


MARKS = b"\nfairlead_refill_rounds_total 5.0\n"


@pytest.mark.parametrize(
    ("identity_field", "is_told"),
    [
        ("vllm", [True, False]),
        ("sglang", [False, True]),
        ("both", [True, True]),
        ("none", [False, False]),
    ],
)
def test_only_an_engine_that_is_told_the_clients_is_left_the_queueing(
    identity_field: str, is_told: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    """Of the others that is said once, however often they are asked, and again in their next life."""
    for body, told in zip((VLLM + MARKS, SGLANG + MARKS), is_told, strict=True):
        caplog.clear()
        dispatcher = Dispatcher(
            router=D2LPM(), index=ChunkIndex(), rules=QueueRules(), on_ready=lambda _: None
        )
        engine = Engine("http://w")
        loads = Loads(
            dispatcher=dispatcher, engine=lambda _, engine=engine: engine, detects=True,
            identity_field=identity_field, interval_s=0.1,
        )  # fmt: skip
        for life in (1, 2):
            dispatcher.worker_up("w")
            for _ in range(3):
                loads._conclude("w", body)
                assert (dispatcher.workers["w"].queue is None) == told
            warned = [one for one in caplog.records if one.levelno == logging.WARNING]
            assert len(warned) == (0 if told else life)
            dispatcher.worker_down("w")
            asyncio.run(one_look(loads))
        for one in warned:
            assert one.getMessage().startswith("engine w has the plug-in")
            assert f"--identity-field {identity_field} " in one.getMessage()


async def one_look(loads: Loads) -> None:
    loads.start()
    await asyncio.sleep(0)
    loads.close()


def test_a_load_is_asked_for_over_a_connection_that_is_kept() -> None:
    """Four connections a second to each engine were most of what asking cost."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(b"")
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked[-1] += head
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        engine = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            assert await Probe().get(engine, b"/metrics", timeout_s=5, keeps=True) == (200, b"hi")
        assert await Probe().get(engine, b"/health", timeout_s=5) == (200, b"hi")
        engine.close()
        server.close()

    asyncio.run(story())

    assert [heads.count(b"GET") for heads in asked] == [3, 1]
    assert [b"close" in heads for heads in asked] == [False, True]


@pytest.mark.parametrize("serves", [True, False])
def test_a_kept_connection_that_the_engine_has_closed_says_nothing_of_the_engine(
    serves: bool,
) -> None:
    """It is asked over a fresh one; if that breaks, too, then it is the engine."""
    asked: list[int] = []

    async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(0)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                asked[-1] += 1
                if asked[-1] > 1 or (len(asked) > 1 and not serves):
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(answer_first, "127.0.0.1", 0)
        engine = Engine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await Probe().get(engine, b"/metrics", timeout_s=5, keeps=True)
        with nullcontext() if serves else pytest.raises(EngineFailed):
            found = await Probe().get(engine, b"/metrics", timeout_s=5, keeps=True)
            assert found == (200, b"hi")
        engine.close()
        server.close()

    asyncio.run(story())

    assert asked == [2, 1]

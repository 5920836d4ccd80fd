"""A real nginx with the configuration of deploy/nginx, in front of a gateway."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import install_programs

from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.local.engine_process import free_ports
from tests.e2e.deploy.processes import running
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, events, good
from tests.e2e.gateway.world import CHAT, Connection, World, eventually, play

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "deploy" / "nginx" / "fairhit.conf"
NGINX = install_programs.find("nginx")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(NGINX is None, reason="no nginx: scripts/install_programs.py"),
]

# What Debian's nginx.conf has around a site, with every file in a folder of the test.
AROUND = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site;
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, gateway_port: int) -> Iterator[int]:
    """Run nginx and yield its port."""
    (port,) = free_ports(1)
    site = SITE.read_text()
    assert site.count("listen 80;") == site.count("127.0.0.1:8000") == 1
    site = site.replace("listen 80;", f"listen 127.0.0.1:{port};")
    (folder / "site").write_text(site.replace("127.0.0.1:8000", f"127.0.0.1:{gateway_port}"))
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    assert NGINX is not None
    command = [NGINX, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    with running(command, install_programs.environment(NGINX)):
        yield port


async def connect(port: int) -> Connection:
    """A caller of nginx, as soon as it listens."""
    async with asyncio.timeout(20):
        while True:
            try:
                return Connection(*await asyncio.open_connection("127.0.0.1", port))
            except ConnectionError:
                await asyncio.sleep(0.05)


def test_each_event_passes_before_the_next_one_is_made(tmp_path):
    """The engine makes no second event before the caller has the first: buffered, none would come."""
    seen = asyncio.Event()

    async def one_by_one(received: Received) -> None:
        begin_stream(received)
        for event in events(usage=False):
            seen.clear()
            chunk(received, event)
            await seen.wait()
        chunk(received, b"")

    async def story(world: World) -> None:
        with nginx(tmp_path, world.gateway.port) as port:
            caller = await connect(port)
            caller.send(CHAT, chat(stream=True))
            async with asyncio.timeout(20):
                head = (await caller.reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200")
            assert b"text/event-stream" in head
            pieces = []
            async with asyncio.timeout(20):
                async for piece in caller.chunks():
                    pieces.append(piece)
                    seen.set()
            caller.writer.close()
        assert pieces[0] == events(usage=False)[0]
        assert pieces[-1] == b"data: [DONE]\n\n"

    play(story, one_by_one)


def test_a_disconnect_of_the_client_reaches_the_engine(tmp_path):
    async def endless(received: Received) -> None:
        begin_stream(received)
        while True:
            chunk(received, events(usage=False)[1])
            await asyncio.sleep(0.01)

    async def story(world: World) -> None:
        with nginx(tmp_path, world.gateway.port) as port:
            caller = await connect(port)
            caller.send(CHAT, chat(stream=True))
            await asyncio.wait_for(caller.reader.readuntil(b"data: "), 20)
            caller.reset()
            await asyncio.wait_for(world.engines[0].left.wait(), 20)

    play(story, endless)


def test_callers_cannot_name_their_tenant_nor_see_the_admin_surface(tmp_path):
    async def story(world: World) -> None:
        with nginx(tmp_path, world.gateway.port) as port:
            caller = await connect(port)
            for name in TENANT_HEADERS:
                caller.send(CHAT, chat(), **{name.decode(): "gold"})
                assert (await caller.reply()).status == 200
            for path, status in (
                ("/v1/models", 200), ("/readiness", 200), ("/metrics", 404), ("/workers", 404)
            ):  # fmt: skip
                caller.send(path)
                assert (await caller.reply()).status == status, path
            caller.writer.close()
        said = [received.json()["vllm_xargs"]["fair_client"] for received in world.received()]
        assert said == ["anonymous"] * len(TENANT_HEADERS)

    play(story, good, trust_tenant_header=True)


def test_connections_to_the_gateway_are_kept(tmp_path):
    async def story(world: World) -> None:
        with nginx(tmp_path, world.gateway.port) as port:
            for _ in range(5):
                caller = await connect(port)
                caller.send(CHAT, chat())
                assert (await caller.reply()).status == 200
                caller.writer.close()
            await eventually(lambda: len(world.received()) == 5)
            assert len(world.gateway.connections) == 1

    play(story, good)

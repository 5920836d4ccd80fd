"""Ports, TLS on both sides, and what is added to the heads of answers."""

import asyncio
import json
import ssl
import subprocess
from pathlib import Path

import pytest

from fairhit.errors import ConfigError
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway.scripts import chat, good
from tests.e2e.gateway.world import CHAT, Connection, FakeEngine, Reply, World, eventually, play


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", key, "-out", certificate,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def ask_tls(port: int, believes: Path, path: str, body: bytes = b"") -> tuple[Reply, str]:
    """The answer, and the name on the certificate."""
    context = ssl.create_default_context(cafile=believes)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("peercert")["subject"][0][0][1]
    connection = Connection(reader, writer)
    connection.send(path, body)
    try:
        return await connection.reply(), shown
    finally:
        writer.close()


def test_callers_can_have_tls_and_the_certificate_can_be_renewed(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "first")
    other, other_key = certified(tmp_path, "second")

    async def story(world: World) -> None:
        port = world.gateway.port
        reply, shown = await ask_tls(port, certificate, CHAT, chat(stream=True))
        assert (reply.status, reply.body[-8:], shown) == (200, b"[DONE]\n\n", "first")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await world.get("/health")  # not TLS

        held, _ = certificate.read_bytes(), key.read_bytes()
        certificate.write_bytes(other.read_bytes())
        with pytest.raises(ConfigError, match="key values mismatch"):
            world.gateway.apply(world.gateway.settings)
        certificate.write_bytes(held)
        assert (await ask_tls(port, certificate, "/health"))[1] == "first"

        certificate.write_bytes(other.read_bytes())
        key.write_bytes(other_key.read_bytes())
        world.gateway.apply(world.gateway.settings)
        assert (await ask_tls(port, other, "/health"))[1] == "second"

    play(story, good, tls_cert_path=certificate, tls_key_path=key)


def test_engines_can_have_tls_with_a_trusted_certificate(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "engine")
    stranger, _ = certified(tmp_path, "stranger")

    class TlsEngine(FakeEngine):
        async def start(self) -> "TlsEngine":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=context)
            self.url = f"https://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
            return self

    async def answers(*believed: Path) -> bool:
        engine = await TlsEngine(good).start()
        gateway = Gateway(
            GatewaySettings(
                port=0, worker_urls=(engine.url,), ca_cert_paths=believed,
                health_check_interval_secs=0.05, shutdown_timeout_secs=0,
            )
        )  # fmt: skip
        await gateway.start()
        ((_, watch, known),) = gateway.pool.watches()
        await eventually(lambda: known.up or watch.problem is not None)
        if known.up:
            reply = await World(gateway, [engine]).ask(body=chat(stream=True))
            assert reply.body.endswith(b"[DONE]\n\n")
        else:
            assert "certificate verify failed" in str(watch.problem)
        await gateway.stop()
        engine.stop()
        return known.up

    assert asyncio.run(answers(certificate))
    assert not asyncio.run(answers(stranger))
    assert not asyncio.run(answers())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls_cert_path": "none.pem", "tls_key_path": "none.key"}, "No such file"),
        ({"ca_cert_paths": ("none.pem",), "worker_urls": ("https://e:1",)}, "none.pem: cannot be"),
    ],
)
def test_a_certificate_that_cannot_be_read_is_one_line(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Gateway(GatewaySettings(port=0, **settings))


def test_metrics_can_have_a_port_of_their_own() -> None:
    async def story(world: World) -> None:
        port = world.gateway.metrics_port
        assert port is not None
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        statuses = []
        for path in ("/metrics", "/health", "/workers", "/v1/models"):
            connection.send(path)
            reply = await connection.reply()
            statuses.append(reply.status)
            if path == "/metrics":
                assert b"fairhit_worker_up" in reply.body
        connection.writer.close()
        assert statuses == [200, 200, 404, 404]
        assert (await world.get("/metrics")).status == 404
        assert (await world.get("/health")).status == 200

    play(story, good, prometheus_port=0)


def test_who_asks_for_metrics_slowly_is_sent_away() -> None:
    async def story(world: World) -> None:
        port = world.gateway.metrics_port
        assert port is not None
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        connection.writer.write(b"GET /metrics HTTP/1.1\r\nhost:")
        assert (await connection.reply()).status == 408
        assert await connection.reader.read() == b""

    play(story, good, prometheus_port=0, client_timeout_secs=0.2)


def test_an_id_is_echoed_and_passed_on_and_made_where_there_is_none() -> None:
    async def story(world: World) -> None:
        given = await world.ask(body=chat(stream=True), x_trace_id="abc-1")
        made = [(await world.ask()).headers["x-request-id"] for _ in range(2)]
        refused = await world.ask(body=b"{", x_request_id="mine")
        strange = await world.ask(x_request_id="x" * 300)

        assert given.headers["x-request-id"] == "abc-1"
        heads = [received.head for received in world.received()]
        assert "x-trace-id: abc-1\r\n" in heads[0]
        assert [f"x-request-id: {one}\r\n" in head for one, head in zip(made, heads[1:3], strict=True)] == [
            True, True,
        ]  # fmt: skip
        assert made[0] != made[1]
        assert (refused.status, refused.headers["x-request-id"]) == (400, "mine")
        assert strange.headers["x-request-id"] != "x" * 300
        assert heads[3].lower().count("x-request-id") == 1

    play(story, good, request_id_headers=("x-request-id", "x-trace-id"))


def test_web_pages_that_are_named_may_ask_and_read_the_answer() -> None:
    page = "https://chat.test"

    async def preflight(world: World, origin: str) -> Reply:
        connection = await world.connect()
        connection.writer.write(
            f"OPTIONS {CHAT} HTTP/1.1\r\nhost: g\r\norigin: {origin}\r\n"
            "access-control-request-method: POST\r\n"
            "access-control-request-headers: authorization,x-a\r\n\r\n".encode()
        )
        try:
            return await connection.reply()
        finally:
            connection.writer.close()

    async def story(world: World) -> None:
        asked = await preflight(world, page)
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, page)
        assert asked.headers["access-control-allow-headers"] == "authorization,x-a"
        evil = await preflight(world, "https://evil.test")
        assert (evil.status, "access-control-allow-origin" in evil.headers) == (401, False)

        key = "Bearer k"
        reply = await world.ask(origin=page, authorization=key)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)
        assert "origin:" not in world.received()[0].head.lower()
        denied = await world.ask(origin=page)
        assert (denied.status, denied.headers["access-control-allow-origin"]) == (401, page)
        other = await world.ask(origin="https://evil.test", authorization=key)
        assert "access-control-allow-origin" not in other.headers
        assert json.loads(other.body)["usage"]

    play(story, good, cors_allowed_origins=(page,), tenant_api_key=("a:k",))


def test_a_tenant_header_of_another_name_is_the_only_one_believed() -> None:
    async def story(world: World) -> None:
        await world.ask(x_team="gold", x_smg_tenant_id="other")
        await world.ask(x_smg_tenant_id="other")
        twice = await world.connect()
        twice.writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nx-team: a\r\nx-team: b\r\n"
            "content-length: 2\r\n\r\n{}".encode()
        )
        assert "more than once" in (await twice.reply()).error()["message"]
        twice.writer.close()

        clients = [received.json()["vllm_xargs"]["fair_client"] for received in world.received()]
        assert clients == ["gold", "anonymous"]
        assert "x-team" not in world.received()[0].head.lower()

    play(story, good, trust_tenant_header=True, tenant_header_name="X-Team")


def test_a_tenant_header_may_have_underscores() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat()
        caller.writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: g\r\nX_Team: gold\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert (await caller.reply()).status == 200
        caller.writer.close()
        received = world.received()[0]
        assert received.json()["vllm_xargs"]["fair_client"] == "gold"
        assert "x_team" not in received.head.lower()

    play(story, good, trust_tenant_header=True, tenant_header_name="X_Team")


def test_a_usual_tenant_header_can_be_named_as_the_only_one() -> None:
    """smg's own default, given as a flag."""

    async def story(world: World) -> None:
        await world.ask(x_smg_tenant_id="gold")
        await world.ask(x_smg_routing_key="other")
        clients = [received.json()["vllm_xargs"]["fair_client"] for received in world.received()]
        assert clients == ["gold", "anonymous"]

    play(story, good, trust_tenant_header=True, tenant_header_name="X-SMG-Tenant-Id")


def test_a_page_that_may_ask_may_still_not_operate() -> None:
    async def story(world: World) -> None:
        connection = await world.connect()
        connection.send("/workers", origin="https://chat.test")
        assert (await connection.reply()).status == 403
        connection.writer.close()

    play(story, good, cors_allowed_origins=("*",))

"""What callers do wrong, and who they say they are: the upper rows of DESIGN section 7."""

import pytest

from tests.e2e.gateway.scripts import (
    Received,
    chat,
    events,
    good,
    hang,
    whole,
)
from tests.e2e.gateway.world import (
    CHAT,
    World,
    eventually,
    play,
)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b"[1]", 400, None),
        (chat(messages="hi"), 400, "messages"),
        (chat(max_tokens="x"), 400, "max_tokens"),
        (chat(stream=1), 400, "stream"),
        (chat(model=["m"]), 400, "model"),
        (chat(model="unknown"), 404, "model"),
        (chat(vllm_xargs={}, x=None).replace(b"null", b"[" * 1000 + b"]" * 1000), 400, None),
        (chat(vllm_xargs={}, x=None).replace(b"null", b"1" * 5000), 400, None),
    ],
)
def test_a_bad_body_is_refused_with_the_field_named(
    body: bytes, status: int, param: str | None
) -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=body)

        assert (reply.status, reply.error()["param"]) == (status, param)
        assert world.received() == []
        assert not world.gateway.dispatcher.engines[world.engines[0].url].tickets

    play(story, good)


def test_what_the_engine_refuses_is_passed_on_and_not_charged() -> None:
    """A prompt that can never fit: the engine knows its limits and says both numbers."""
    refusal = b'{"error":{"message":"10 + 99 is more than 64","param":"max_tokens"}}'

    async def refuse(received: Received) -> None:
        whole(received, 400, refusal)

    async def story(world: World) -> None:
        reply = await world.ask(body=chat(max_tokens=99))

        assert (reply.status, reply.body) == (400, refusal)
        assert world.spent() == 0
        assert len(world.received()) == 1  # asking another would not help

    play(story, refuse, refuse)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_too_large_is_refused(announced: bool) -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat(user="x" * 2000)
        if announced:
            caller.send(CHAT, body)
        else:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            caller.writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        reply = await caller.reply()

        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert "1000" in reply.error()["message"]

    play(story, good, max_payload_size=1000)


def test_a_chunked_body_is_forwarded_with_its_length() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        parts = [chat()[:20], chat()[20:]]
        data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        caller.writer.write(head + data + b"0\r\n\r\n")

        assert (await caller.reply()).status == 200
        assert "transfer-encoding" not in world.received()[0].head.lower()

    play(story, good)


def test_headers_too_large_are_refused() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        for line in (
            b"GET /health HTTP/1.1\r\nhost: a\r\n",
            *[b"x-%d: %b\r\n" % (n, b"y" * 1000) for n in range(99)],
        ):
            caller.writer.write(line)
        reply = await caller.reply()

        assert (reply.status, reply.error()["code"]) == (431, "headers_too_large")

    play(story, good)


def test_a_request_that_takes_too_long_to_arrive_is_refused() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{".encode()
        )
        reply = await caller.reply()

        assert (reply.status, reply.error()["code"]) == (408, "request_timeout")

    play(story, good, client_timeout_secs=0.2)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost:\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"CONNECT engine:8000 HTTP/1.1\r\nhost: engine\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http_request_is_answered_and_the_connection_closed(data: bytes) -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.write(data)
        reply = await caller.reply()

        assert reply.status in {400, 404}
        assert reply.error()["type"] == "invalid_request_error"
        assert world.received() == []

    play(story, good)


def test_paths_and_methods_that_do_not_exist() -> None:
    async def story(world: World) -> None:
        assert (await world.get("/v2/other")).status == 404
        assert (await world.get(CHAT)).status == 405
        assert (await world.ask("/health")).status == 405

    play(story, good)


def test_without_a_key_nothing_is_served_and_the_key_stays_here() -> None:
    async def story(world: World) -> None:
        refused = [
            await world.ask(),
            await world.ask(authorization="Bearer nope"),
            await world.ask(x_smg_tenant_id="alice"),
        ]
        assert [(reply.status, reply.error()["code"]) for reply in refused] == [
            (401, "invalid_api_key")
        ] * 3
        assert {reply.body for reply in refused} == {refused[0].body}

        spoof = chat(vllm_xargs={"fair_client": "bob"}, user="bob")
        reply = await world.ask(
            body=spoof, authorization="Bearer k1", x_llm_d_inference_fairness_id="bob", x_other="1"
        )
        (received,) = world.received()
        assert reply.status == 200
        assert received.json()["vllm_xargs"] == {"fair_client": "alice"}
        assert "k1" not in received.head and "fairness" not in received.head
        assert "x-other: 1" in received.head
        assert world.spent("alice") > 0 == world.spent("bob")

    play(story, good, tenant_api_key=("alice:k1",))


def test_without_a_key_a_body_is_not_waited_for() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n{{".encode()
        )
        reply = await caller.reply()

        assert (reply.status, reply.headers["connection"]) == (401, "close")

    play(story, good, tenant_api_key=("alice:k1",))


@pytest.mark.parametrize("trusted", [True, False])
def test_a_trusted_header_comes_once(trusted: bool) -> None:
    """A proxy that adds its header to the caller's own lets the caller choose."""

    async def story(world: World) -> None:
        twice = {"x_smg_tenant_id": "alice", "X_SMG_TENANT_ID": "bob"}
        assert (await world.ask(**twice)).status == (400 if trusted else 200)

    play(story, good, trust_tenant_header=trusted)


def test_of_several_trusted_headers_the_first_kind_counts() -> None:
    async def story(world: World) -> None:
        await world.ask(x_llm_d_inference_fairness_id="new", x_smg_tenant_id="old")
        await world.ask(x_smg_tenant_id="old", x_gateway_inference_fairness_id="middle")
        await world.ask(x_smg_routing_key="of SGLang")

        clients = [received.json()["vllm_xargs"]["fair_client"] for received in world.received()]
        assert clients == ["new", "middle", "of SGLang"]
        assert not [one for one in world.received() if "routing-key" in one.head.lower()]

    play(story, good, trust_tenant_header=True)


def test_stock_engines_get_the_body_untouched() -> None:
    async def story(world: World) -> None:
        """Streamed tokens are then counted as they pass; what the engine had cached is not known."""
        bodies = [chat(seed=1), chat(stream=True)]
        replies = [await world.ask(body=body) for body in bodies]

        assert [received.body for received in world.received()] == bodies
        assert replies[1].body == b"".join(events(usage=False))
        assert world.spent() == (18 + 2 * 3) + (2 + 2 * 3)

    play(story, good, identity_field="none", usage_field="none")


def test_a_full_client_waits_while_another_is_served() -> None:
    async def story(world: World) -> None:
        waiting = await world.connect()
        waiting.send(CHAT, chat(stream=True, max_tokens=5), authorization="Bearer k1")
        await eventually(lambda: len(world.received()) == 1)
        full = await world.ask(authorization="Bearer k1")
        other = await world.ask(body=chat(max_tokens=6), authorization="Bearer k2")

        assert (full.status, full.headers["retry-after"]) == (429, "1")
        assert full.error()["code"] == "rate_limit_exceeded"
        assert other.status == 200
        waiting.reset()

    async def slow_for_one(received: Received) -> None:
        await (hang if received.json().get("max_tokens") == 5 else good)(received)

    keys = ("alice:k1", "bob:k2")
    play(story, slow_for_one, tenant_api_key=keys, max_client_requests=1)

"""What a request is taken for before it goes anywhere."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fairhit.gateway.api.endpoints import endpoint_of
from fairhit.gateway.api.request_body import parse_body
from fairhit.gateway.http.read_budget import ITERATION
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings

TEXT = b"a" * 300


def chunks(gateway: Gateway) -> tuple[int, ...]:
    endpoint = endpoint_of(b"/v1/completions")
    assert endpoint is not None
    call = parse_body(b'{"model": "m", "prompt": "%b"}' % TEXT, endpoint)
    return gateway._admission._chunked(call)[1]


def test_each_gateway_sums_prompts_as_no_caller_can() -> None:
    """A caller that knew the sums could make two prompts that pass for one, and be charged for less."""
    one, other = (Gateway(GatewaySettings(worker_urls=("http://127.0.0.1:1",))) for _ in range(2))

    assert len(chunks(one)) == 1
    assert chunks(one) == chunks(one)
    assert chunks(one) != chunks(other)


def test_long_bodies_are_read_a_step_of_each_client_in_turn() -> None:
    """Thirty of one client's before another's: the latter waits for three of them at most."""
    endpoint, read = endpoint_of(b"/v1/completions"), list[str]()
    assert endpoint is not None

    async def story() -> None:
        gateway = Gateway(GatewaySettings(worker_urls=("http://127.0.0.1:1",)))
        for client in ("many",) * 30 + ("one",):
            request = IncomingRequest(RequestHead())
            request.client = client
            request.body = b'{"model":"m","prompt":"%b"}' % (b"x" * ITERATION)
            connection: Any = SimpleNamespace(proceed=lambda _, name=client: read.append(name))
            gateway._admission.begin(connection, request, endpoint)
        while len(read) < 31:
            await asyncio.sleep(0)

    asyncio.run(story())
    assert read.index("one") <= 3

"""What a request is taken for before it goes anywhere."""

from fairlead.gateway.openai import read_call
from fairlead.gateway.server import Gateway
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.surface import surface_of

TEXT = b"a" * 300


def chunks(gateway: Gateway) -> tuple[int, ...]:
    surface = surface_of(b"/v1/completions")
    assert surface is not None
    call = read_call(b'{"model": "m", "prompt": "%b"}' % TEXT, surface)
    return gateway._intake._chunked(call).prompt.chunks


def test_each_gateway_sums_prompts_as_nobody_else_can() -> None:
    """Whoever knew the sums could make two prompts that pass for one, and be charged for less."""
    one, other = (Gateway(GatewaySettings(worker_urls=("http://127.0.0.1:1",))) for _ in range(2))

    assert len(chunks(one)) == 1
    assert chunks(one) == chunks(one)
    assert chunks(one) != chunks(other)

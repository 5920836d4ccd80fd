"""Anthropic's messages, where SGLang reads the client from a header only."""

import json
from pathlib import Path

import pytest

from fairhit.client_names import client_name
from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.api.injected_fields import FieldInjector
from fairhit.gateway.api.request_body import parse_body
from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway.path_scripts import PATHS, any_path
from tests.e2e.gateway.world import World, play

NAMED_BY_HEADER = ("/v1/messages", "/v1/messages?beta=true")
HEADER = "x-smg-routing-key"


def heads(tenant: str, *, identity_field: str) -> dict[str, list[str]]:
    """Client in the header for the engine, by path; the caller claims to be another client."""
    found: dict[str, list[str]] = {}

    async def story(world: World) -> None:
        for path, fields in PATHS.items():
            body = json.dumps({"model": "m", **fields}).encode()
            claims = {"x_smg_tenant_id": tenant, "x_smg_routing_key": "mallory"}
            assert (await world.ask(path, body, **claims)).status == 200, path
            lines = world.received()[-1].head.lower().splitlines()
            found[path] = [
                line.partition(": ")[2] for line in lines if line.startswith(f"{HEADER}:")
            ]

    play(story, any_path, identity_field=identity_field, trust_tenant_header=True)
    return found


def test_the_page_of_paths_says_where_an_engine_takes_the_client() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/paths.md").read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `POST /v1/")]
    for path, vllm, sglang in rows:
        endpoint = ENDPOINTS[path.split("`")[1].removeprefix("POST ").encode()]
        assert endpoint.identity == (vllm.strip() == "yes"), path
        assert endpoint.named_by_header == (sglang.strip() == "by header"), path
    assert len(rows) >= 6


@pytest.mark.parametrize("identity_field", ["sglang", "both"])
def test_the_header_names_the_client(identity_field: str) -> None:
    named = heads("alice", identity_field=identity_field)

    assert {path for path, names in named.items() if names} == set(NAMED_BY_HEADER)
    assert [named[path] for path in NAMED_BY_HEADER] == [["alice"]] * 2


@pytest.mark.parametrize("identity_field", ["vllm", "none"])
def test_engines_of_another_make_get_no_such_header(identity_field: str) -> None:
    assert not any(heads("alice", identity_field=identity_field).values())


@pytest.mark.parametrize(
    "name", ["alice", "älice", " alice", "alice ", "a\tb", "ä" * 140, "a.b:@/+=-"]
)
def test_a_client_is_one_by_header_and_by_field(name: str) -> None:
    """The plug-in writes a name it finds in a field like that; in a header blanks would be cut off."""
    injector = FieldInjector(GatewaySettings(identity_field="sglang"))
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    call = parse_body(json.dumps(body).encode(), ENDPOINTS[b"/v1/messages"])

    lines = injector.headers(b"a: b\r\n", call, name).decode("ascii")
    named = lines.removeprefix(f"a: b\r\n{HEADER}: ").removesuffix("\r\n").strip()
    assert named == client_name(named) == client_name(name)

"""Without an admin key only direct callers on this machine may operate a gateway."""

import pytest

from tests.e2e.gateway.operators import operate
from tests.e2e.gateway.scripts import good
from tests.e2e.gateway.world import World, play


def apply(world: World, key: str | None) -> None:
    world.gateway.apply(world.gateway.settings.replaced(admin_api_key=key))


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_for": "10.0.0.1"},
        {"origin": "http://evil.test"},
        {"via": "1.1 p"},
        {"host": "gateway"},
        {"host": "evil.test:8000"},
        {"host": "127.0.0.1.evil.test"},
        {"host": ""},
    ],
)
def test_without_an_admin_key_proxies_and_web_pages_are_refused(
    headers: dict[str, str],
) -> None:
    async def story(world: World) -> None:
        for _ in range(3):  # a head that came before is not read again
            reply = await operate(world, "POST", "/workers", {"url": "http://e:1"}, **headers)
            assert (reply.status, reply.error()["code"]) == (403, "forbidden")
        assert (await operate(world, "GET", "/dashboard/data", **headers)).status == 403
        assert (await operate(world, "GET", "/workers")).status == 200

    play(story, good)


def test_without_an_admin_key_http_1_0_is_refused_as_some_proxies_use_it() -> None:
    async def story(world: World) -> None:
        connection = await world.connect()
        connection.writer.write(b"GET /workers HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await connection.reply()).status == 403

    play(story, good)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/workers", {"url": "http://e:1"}),
        ("DELETE", "/workers", {"url": "http://e:1"}),
        ("POST", "/workers/drain", {"url": "http://e:1"}),
        ("POST", "/scheduler", {"scheduler": "fcfs"}),
    ],
)
def test_behind_an_unmarked_proxy_changes_need_an_admin_key(
    method: str, path: str, body: dict[str, str]
) -> None:
    """HAProxy as it comes: HTTP/1.1, no header of its own, and Host as its caller wrote it."""

    async def story(world: World) -> None:
        reply = await operate(world, method, path, body, host="localhost")
        assert (reply.status, reply.error()["code"]) == (403, "forbidden")
        assert "--admin-api-key" in reply.error()["message"]
        assert (await operate(world, "GET", path, host="localhost")).status in {200, 405}
        key = {"authorization": "Bearer k"}
        apply(world, "k")
        reply = await operate(world, method, path, body, host="localhost", **key)
        assert reply.status in {200, 201, 404}
        apply(world, None)
        assert (await operate(world, method, path, body, host="localhost")).status == 403

    play(story, good, trust_tenant_header=True)


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8000", "127.0.0.1", "[::1]", "[::1]:80"])
def test_without_an_admin_key_this_machine_may_by_its_own_names(host: str) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            reply = await operate(world, "POST", "/scheduler", {"scheduler": "fcfs"}, host=host)
            assert reply.status == 200

    play(story, good)

"""Lines of a head that expressions find: the values they take, and that they look at no byte twice."""

import re

import pytest

from fairhit.gateway.auth.header_options import HeaderOptions, RoutingKey
from fairhit.gateway.observability.access_log import id_patterns
from fairhit.gateway.settings import GatewaySettings

SETTINGS = GatewaySettings(
    worker_urls=("http://a",), request_id_headers=("x-id",), cors_allowed_origins=("*",),
    tenant_header_name="x-team", trust_tenant_header=True,
)  # fmt: skip


def all_of_them() -> list[re.Pattern[bytes]]:
    options = HeaderOptions(SETTINGS)
    found = [each for each in vars(options).values() if isinstance(each, re.Pattern)]
    return [*found, *options._ids, RoutingKey("x-key")._line, *id_patterns(("x-id",))]


def test_no_expression_over_a_head_can_turn_back() -> None:
    """A value with 60,000 blanks in it, which is a head of 64 KiB, held the loop up for a second."""
    assert len(all_of_them()) >= 7
    for found in all_of_them():
        assert not {b"*", b"+"} & set(re.findall(rb"[*+]", re.sub(rb"[*+]\+", b"", found.pattern)))


@pytest.mark.parametrize(
    "value", [b"", b"a", b"a b", b"a   b c", b"\x80 \t x", b"a" + b" " * 60_000 + b"b"]
)
@pytest.mark.parametrize("after", [b"", b" ", b"   "])
def test_a_value_is_found_without_the_blanks_around_it(value: bytes, after: bytes) -> None:
    line = b"x-key:  %b%b\r\n" % (value, after)
    for found in (RoutingKey("x-key")._line, HeaderOptions(SETTINGS)._invalid_id):
        name = b"x-key" if found.match(line) else b"x-id"
        assert found.findall(line.replace(b"x-key", name) * 2) == [value, value]
    wanted = HeaderOptions(SETTINGS)._requested.findall(
        line.replace(b"x-key", b"access-control-request-headers")
    )
    assert wanted == ([value] if value and b"\x80" not in value else [])

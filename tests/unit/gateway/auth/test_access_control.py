"""Access control caches its result with the head, and ignores it after a reload."""

import pytest

from fairhit.errors import BadRequest, Unauthorized
from fairhit.gateway.auth.access_control import AccessControl
from fairhit.gateway.auth.header_options import HeaderOptions
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.auth.keys import digest_of
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings

HEAD = b"POST %b HTTP/1.1\r\nhost: a\r\n%bauthorization: Bearer %b\r\ncontent-length: 0\r\n\r\n"
CHAT = b"/v1/chat/completions"


def head(target: bytes = CHAT, *, lines: bytes = b"", key: bytes = b"key") -> RequestHead:
    reader = RequestParser(max_body_len=9, admit=lambda _: False, body_budget=BodyBudget())
    reader.feed(HEAD % (target, lines, key))
    return reader.take().head


def admission(
    keys: dict[str, str],
    settings: GatewaySettings | None = None,
    *,
    operators: bytes = b"",
    passes_key: bool = False,
    trusts_header: bool = False,
) -> AccessControl:
    def check_operator(head: RequestHead) -> None:
        if operators and head.authorization != b"Bearer " + operators:
            raise Unauthorized("no operator")

    return AccessControl(
        identity=Identity(
            keys={digest_of(key.encode()): name for key, name in keys.items()},
            trust_tenant_header=trusts_header,
        ),
        check_operator=check_operator,
        options=HeaderOptions.wanted(settings or GatewaySettings()),
        passes_key=passes_key,
    )


def admit(by: AccessControl, shared: RequestHead) -> IncomingRequest:
    request = IncomingRequest(shared)
    assert by.admit(request) is (shared.endpoint is not None)
    return request


def test_the_result_for_a_head_is_cached_until_keys_are_reloaded() -> None:
    shared = head()
    first = admission({"key": "alice"})
    assert [admit(first, shared).client for _ in range(2)] == ["alice", "alice"]

    assert admit(admission({"key": "bob"}), shared).client == "bob"
    revoked = admission({"other": "alice"})
    refusals = []
    for _ in range(2):
        with pytest.raises(Unauthorized) as refusal:
            revoked.admit(IncomingRequest(shared))
        refusals.append(refusal.value)
    assert refusals[0] is not refusals[1], "an error that is raised again grows by its traceback"
    assert admit(first, shared).client == "alice"


def test_operators_are_asked_for_their_key_whatever_was_found_before() -> None:
    shared = head(b"/workers")
    assert admission({}).admit(IncomingRequest(shared))
    for _ in range(2):
        with pytest.raises(Unauthorized, match="no operator"):
            admission({}, operators=b"secret").admit(IncomingRequest(shared))


@pytest.mark.parametrize(
    ("lines", "has_one"),
    [(b"", False), (b"x-request-id: odd id\r\n", False), (b"x-request-id: 7\r\n", True)],
)
def test_each_request_has_an_id_of_its_own_unless_the_head_has_one(
    lines: bytes, has_one: bool
) -> None:
    shared = head(lines=lines + b"accept: */*\r\n")
    by = admission({}, GatewaySettings(request_id_headers=["x-request-id"]))
    requests = [admit(by, shared) for _ in range(3)]

    assert [one.lines.count(b"x-request-id: ") for one in requests] == [1, 1, 1]
    assert all(one.echo in one.lines and b"accept" in one.lines for one in requests)
    assert len({one.echo for one in requests}) == (1 if has_one else 3)


def test_a_callers_key_goes_on_only_where_it_is_the_engines() -> None:
    shared = head()

    assert b"Bearer key" in admit(admission({}, passes_key=True), shared).lines
    assert b"Bearer" not in admit(admission({"key": "alice"}), shared).lines


def test_what_is_not_the_engines_business_is_taken_out_however_often_it_comes() -> None:
    settings = GatewaySettings(
        request_id_headers=["x-request-id"], cors_allowed_origins=["https://a"]
    )
    lines = b"x-request-id: odd id\r\n" * 2 + b"origin: https://a\r\n" * 3 + b"accept: */*\r\n"
    request = admit(admission({}, settings), head(lines=lines))

    assert request.lines.count(b"x-request-id") == 1 and b"odd" not in request.lines
    assert b"origin" not in request.lines and b"accept" in request.lines


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ("x-smg-tenant-id", b"x-llm-d-inference-fairness-id"),
        ("x-smg-tenant-id", b"x-team"),
        ("x-team", b"x-smg-tenant-id"),
    ],
)
def test_the_tenant_header_that_is_named_counts_whatever_others_a_caller_adds(
    named: str, other: bytes
) -> None:
    """A proxy sets the named one and passes on what its caller says besides."""
    by = admission({}, GatewaySettings(tenant_header_name=named), trusts_header=True)
    proxys, callers = named.encode() + b": free\r\n", other + b": paid\r\n"

    for lines in (proxys + callers, callers + proxys):
        assert admit(by, head(lines=lines)).client == "free"
        with pytest.raises(BadRequest, match="more than once"):
            admit(by, head(lines=lines + proxys))
    assert admit(by, head(lines=callers)).client is None

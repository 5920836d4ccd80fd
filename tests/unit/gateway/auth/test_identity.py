"""Identity of clients, which no caller can fake."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.errors import BadRequest, ConfigError, Unauthorized
from fairhit.gateway.api.request_body import InjectedFields
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.auth.keys import digest_of, hashed_line, parse_tenant_key, shown_digest

FIELDS = {"vllm_xargs": {"fair_client": "alice"}}


def added(body: bytes) -> bytes:
    return b"".join(InjectedFields(FIELDS).added_to(body, orjson.loads(body)))


def digests(keys: dict[str, str]) -> dict[bytes, str]:
    return {digest_of(key.encode()): client for key, client in keys.items()}


def shown(authorization: bytes) -> bytes:
    return shown_digest(authorization, b"")


def test_tenants_named_in_another_encoding_are_not_one_client() -> None:
    """A proxy that writes Windows-1251: whatever was no UTF-8 was the same replacement character."""
    trusting = Identity(keys={}, trust_tenant_header=True)
    names = [name.encode("cp1251") for name in ("Иван", "Олег")]

    assert len({trusting.authenticate(b"", name) for name in names}) == 2


def test_a_key_names_its_client() -> None:
    identity = Identity(keys=digests({"k1": "alice", "k2": "bob"}))

    assert identity.authenticate(shown(b"Bearer k2"), b"") == "bob"
    assert identity.authenticate(shown(b"bearer  k1"), b"") == "alice"
    assert identity.authenticate(shown_digest(b"", b"k1"), b"") == "alice"
    assert identity.authenticate(shown_digest(b"Bearer k2", b"k1"), b"") == "bob"


@pytest.mark.parametrize(
    "authorization", [b"", b"Bearer", b"Bearer nope", b"Basic k1", b"k1", b"Bearer k1 x"]
)
def test_without_a_right_key_there_is_one_answer(authorization: bytes) -> None:
    """The same message for a missing and a wrong key, so that it reveals nothing about keys."""
    with pytest.raises(Unauthorized, match=r"^missing or invalid API key$"):
        Identity(keys=digests({"k1": "alice"})).authenticate(shown(authorization), b"")


def test_a_header_is_believed_only_if_the_operator_says_so() -> None:
    trusting = Identity(keys={}, trust_tenant_header=True)
    wary = Identity(keys={})

    assert trusting.authenticate(b"", b"team-a") == "team-a"
    assert wary.authenticate(b"", b"team-a") is None
    assert wary.client_of(None, "somebody") == "anonymous"


def test_a_key_beats_the_header() -> None:
    identity = Identity(keys=digests({"k1": "alice"}), trust_tenant_header=True)

    assert identity.authenticate(shown(b"Bearer k1"), b"bob") == "alice"
    assert identity.authenticate(b"", b"bob") == "bob"
    with pytest.raises(Unauthorized):
        identity.authenticate(shown(b"Bearer wrong"), b"bob")


def test_the_user_field_is_opt_in() -> None:
    identity = Identity(keys={}, identify_by_user=True)

    assert identity.client_of(None, "u1") == "u1"
    assert identity.client_of("alice", "u1") == "alice"
    assert identity.client_of(None, None) == "anonymous"
    with pytest.raises(BadRequest) as refused:
        identity.client_of(None, "u" * 1000)
    assert refused.value.param == "user"


def test_a_body_is_kept_to_the_byte_but_for_what_is_added() -> None:
    """Numbers of any size, spacing and unknown fields must reach the engine as they were sent."""
    body = b' {"model" : "m", "seed": 123456789012345678901234567890, "x":[1.10, "\\u00e9"] }\n'

    assert added(body) == body[:-2] + b',"vllm_xargs":{"fair_client":"alice"}}\n'
    assert added(b"{}") == b'{"vllm_xargs":{"fair_client":"alice"}}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"vllm_xargs":{"fair_client":"bob","other":1},"m":2}',
        b'{"vllm_xargs":{"fair_client":"bob"},"m":2,"vllm_xargs":{"fair_client":"carol","other":1}}',
        b'{"vllm_xargs":{"fair_client":"bob","fair_client":"carol","other":1},"m":2}',
        b'{"\\u0076llm_xargs":{"f\\u0061ir_client":"bob","other":1},"m":2}',
        b'{"m":2,"vllm_xargs":{"other":1},"\\u0076llm_xargs":{"fair_client":"bob","other":1}}',
    ],
)
def test_a_spoofed_identity_is_overwritten_and_the_rest_kept(body: bytes) -> None:
    sent = json.loads(added(body))

    assert sent == {"vllm_xargs": {"fair_client": "alice", "other": 1}, "m": 2}
    assert added(body).count(b"bob") == added(body).count(b"carol") == 0


@pytest.mark.parametrize("value", [b"null", b'"bob"', b"[1]", b"7"])
def test_a_field_of_another_type_is_replaced(value: bytes) -> None:
    assert json.loads(added(b'{"vllm_xargs":' + value + b"}")) == FIELDS


def test_rewriting_keeps_big_numbers() -> None:
    body = b'{"vllm_xargs":{},"seed":123456789012345678901234567890,"t":0.1,"s":"\\u00e9\\n"}'

    assert json.loads(added(body)) == {**json.loads(body), **FIELDS}


@given(st.dictionaries(st.text(), st.recursive(st.integers() | st.text(), st.lists), max_size=5))
def test_any_body_says_the_same_afterwards(document: dict[str, object]) -> None:
    body = json.dumps(document).encode()
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return  # lone surrogates: refused before

    assert json.loads(added(body)) == {**document, **FIELDS}


def test_a_key_is_known_by_its_digest_alone() -> None:
    """The operator's file needs only digests, the tenant keeps the key."""
    plain = parse_tenant_key("alice:k:1", where="here")
    line = hashed_line("alice:k:1", where="here")

    assert line == f"alice:sha256:{digest_of(b'k:1').hex()}"
    assert parse_tenant_key(line, where="here") == plain == ("alice", digest_of(b"k:1"))
    assert parse_tenant_key(line.upper().replace("ALICE:SHA", "alice:sha"), where="here") == plain
    assert hashed_line(line, where="here") == line


@pytest.mark.parametrize(
    "hashed", ["", "12", "g" * 64, "0" * 63, "0" * 65, digest_of(b"").hex(), "0" * 63 + "\u0660"]
)
def test_a_hash_is_64_digits_of_a_key_that_is_not_empty(hashed: str) -> None:
    """A request without a key has the digest of the empty key, which must belong to no client."""
    with pytest.raises(ConfigError, match=r"^here: expected 64 hexadecimal digits after sha256:"):
        parse_tenant_key(f"alice:sha256:{hashed}", where="here")


@pytest.mark.parametrize("line", ["", "alice", ":k", "alice:", "alice:k k", "alice:kéy"])
def test_a_wrong_key_line_is_one_line_that_hides_the_key(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: expected") as refused:
        parse_tenant_key(line, where="here")
    assert "k k" not in str(refused.value) and "kéy" not in str(refused.value)

"""Who is asking, and that nobody can say it is somebody else."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import BadRequest, ConfigError, Unauthorized
from fairlead.gateway.identity import Identity, parse_tenant_key
from fairlead.gateway.openai import Fields

FIELDS = {"vllm_xargs": {"fair_client": "alice"}}


def added(body: bytes) -> bytes:
    return b"".join(Fields(FIELDS).added_to(body, orjson.loads(body)))


def test_a_key_names_its_client() -> None:
    identity = Identity(keys={"k1": "alice", "k2": "bob"})

    assert identity.authenticate(b"Bearer k2", b"") == "bob"
    assert identity.authenticate(b"bearer  k1", b"") == "alice"


@pytest.mark.parametrize(
    "shown", [b"", b"Bearer", b"Bearer nope", b"Basic k1", b"k1", b"Bearer k1 x"]
)
def test_without_a_right_key_there_is_one_answer(shown: bytes) -> None:
    """The same words whether the key is missing or wrong, so that keys cannot be guessed at."""
    with pytest.raises(Unauthorized, match=r"^missing or invalid API key$"):
        Identity(keys={"k1": "alice"}).authenticate(shown, b"")


def test_a_header_is_believed_only_if_the_operator_says_so() -> None:
    trusting = Identity(keys={}, trust_tenant_header=True)
    wary = Identity(keys={})

    assert trusting.authenticate(b"", b"team-a") == "team-a"
    assert wary.authenticate(b"", b"team-a") is None
    assert wary.client_of(None, "somebody") == "anonymous"


def test_a_key_beats_the_header() -> None:
    identity = Identity(keys={"k1": "alice"}, trust_tenant_header=True)

    assert identity.authenticate(b"Bearer k1", b"bob") == "alice"
    assert identity.authenticate(b"", b"bob") == "bob"
    with pytest.raises(Unauthorized):
        identity.authenticate(b"Bearer wrong", b"bob")


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


@pytest.mark.parametrize("line", ["", "alice", ":k", "alice:", "alice:k k", "alice:kéy"])
def test_a_wrong_key_line_is_one_line_that_hides_the_key(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: expected") as refused:
        parse_tenant_key(line, where="here")
    assert "k k" not in str(refused.value) and "kéy" not in str(refused.value)

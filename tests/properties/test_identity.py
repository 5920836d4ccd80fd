"""However a caller spells the name it claims: no engine receives it unless callers are trusted."""

import json
from functools import partial

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.gateway.api.request_body import InjectedFields
from fairhit.gateway.auth.identity import TENANT_HEADERS, Identity
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest

OURS = {"vllm_xargs": {"fair_client": "alice"}}
SAID = [
    *(name.decode() for name in TENANT_HEADERS),
    "authorization",
    "x-api-key",
    "content-length",
]
VALUES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


def spelt(name: str, *, dashes: str = "-_") -> st.SearchStrategy[str]:
    """The name in any mixture of cases, with any of `dashes` for each of its dashes."""

    def spell(bits: int) -> str:
        letters = (one.upper() if bits >> at & 1 else one for at, one in enumerate(name))
        return "".join(
            dashes[(bits >> at & 1) % len(dashes)] if one == "-" else one
            for at, one in enumerate(letters)
        )

    return st.integers(0, 2 ** len(name) - 1).map(spell)


BLANKS = st.sampled_from(["", " ", "  ", "\t", " \t "])
NAMES = st.sampled_from([*SAID[:4], "x-other", "x_other"]).flatmap(spelt)
HEADERS = st.tuples(NAMES, st.tuples(BLANKS, VALUES, BLANKS).map("".join))


def read(headers: list[tuple[str, str]]) -> IncomingRequest:
    reader = RequestParser(max_body_len=99, admit=lambda request: True, body_budget=BodyBudget())  # noqa: ARG005
    lines = "".join(f"{name}:{value}\r\n" for name, value in headers)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\n{lines}content-length: 2\r\n\r\n"
    reader.feed(head.encode() + b"{}")
    return reader.take()


@settings(max_examples=100, deadline=None)
@given(headers=st.lists(HEADERS, max_size=6))
def test_no_spelling_of_an_identity_reaches_an_engine(headers: list[tuple[str, str]]) -> None:
    request = read(headers)
    passed = request.head.lines.decode().lower().replace("_", "-")

    assert request.refusal is None
    assert not [name for name in SAID if f"{name}:" in passed]
    assert passed.count("x-other:") == sum("other" in name.lower() for name, _ in headers)
    assert Identity(keys={}).authenticate(request.head.shown(), request.head.tenant()[0]) is None


@settings(max_examples=100, deadline=None)
@given(
    named=st.sampled_from(SAID[: len(TENANT_HEADERS)]).flatmap(partial(spelt, dashes="-")),
    value=VALUES,
    noise=st.lists(HEADERS, max_size=3),
)
def test_only_the_names_themselves_are_trusted(
    named: str, value: str, noise: list[tuple[str, str]]
) -> None:
    """A proxy that sets `x-smg-tenant-id` may well let a caller's `x_smg_tenant_id` pass."""
    noise = [(name.replace("-", "_"), said) for name, said in noise]
    request = read([*noise, (named, value), *noise])

    trusting = Identity(keys={}, trust_tenant_header=True)
    tenant, twice = request.head.tenant()
    assert trusting.authenticate(request.head.shown(), tenant) == value
    assert not twice


def escaped(text: str) -> st.SearchStrategy[str]:
    """A string of JSON with any of its characters escaped."""

    def escape(bits: int) -> str:
        return "".join(f"\\u{ord(c):04x}" if bits >> at & 1 else c for at, c in enumerate(text))

    return st.integers(0, 2 ** len(text) - 1).map(lambda bits: f'"{escape(bits)}"')


@st.composite
def claims(draw: st.DrawFn) -> str:
    """A field that says who asks, spelt as engines would read it, or a place where they would not."""
    claim = draw(escaped("fair_client"))
    value = draw(st.sampled_from(['"bob"', "null", "7", '["bob"]', '{"bob":1}']))
    inner = ",".join([f"{claim}:{value}"] * draw(st.integers(1, 2)))
    name = draw(st.sampled_from(["vllm_xargs", "other", "extra_body"]).flatmap(escaped))
    whole = draw(st.sampled_from(["{%s}", '{"other":1,%s}', '{"vllm_xargs":{%s}}', "[{%s}]"]))
    return f"{name}:{whole % inner}"


@settings(max_examples=100, deadline=None)
@given(st.lists(claims(), min_size=1, max_size=4))
def test_what_a_body_says_about_its_sender_is_replaced(fields: list[str]) -> None:
    """Escaped, twice, nested, of another type: an engine reads one client, and that is ours."""
    body = ("{" + ",".join(fields) + "}").encode()
    sent = json.loads(b"".join(InjectedFields(OURS).added_to(body, orjson.loads(body))))

    assert sent["vllm_xargs"]["fair_client"] == "alice"
    before = json.loads(body)
    assert {k: v for k, v in sent.items() if k != "vllm_xargs"} == {
        k: v for k, v in before.items() if k != "vllm_xargs"
    }


@given(
    st.dictionaries(st.sampled_from(["priority", "cache_salt", "user"]), st.integers(), min_size=1)
)
def test_other_fields_of_scheduling_are_the_engines_business(fields: dict[str, int]) -> None:
    body = json.dumps(fields).encode()

    sent = b"".join(InjectedFields(OURS).added_to(body, fields))
    assert sent == body[:-1] + b',"vllm_xargs":{"fair_client":"alice"}}'

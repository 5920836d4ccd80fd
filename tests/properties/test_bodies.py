"""Bodies on their way to an engine: byte for byte but for the fields of ours, whatever JSON they are."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import BadRequest
from fairlead.gateway.additions import Additions
from fairlead.gateway.openai import read_call
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.surface.completions import COMPLETIONS
from fairlead.gateway.surface.embeddings import EMBEDDINGS

OURS = {"fair_client": "alice"}
BLANKS = st.text(" \t\r\n", max_size=2)
# The name of our field as it may be spelt in JSON.
SPELT = st.sampled_from(['"vllm_xargs"', r'"vllm_x\u0061rgs"', r'"\u0076llm_xargs"'])


@st.composite
def strings(draw: st.DrawFn) -> str:
    """A string as some library writes it: plain, escaped, or a mixture."""
    text = draw(st.text(st.characters(codec="utf-8"), max_size=8))
    if draw(st.booleans()):
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "-0", "1E5", "1e+05", "-0.0", "1.0000000000000000001"]),
)
SCALARS = st.one_of(NUMBERS, strings(), st.sampled_from(["true", "false", "null"]))


@st.composite
def members(draw: st.DrawFn, values: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> str:
    """What is between the braces of an object; a name may come twice."""
    pairs = draw(st.lists(st.tuples(BLANKS, names, BLANKS, BLANKS, values, BLANKS), max_size=4))
    return ",".join(f"{a}{name}{b}:{c}{value}{d}" for a, name, b, c, value, d in pairs)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + " ,".join(items) + "]"),
        members(inner, strings()).map(lambda text: "{" + text + "}"),
    ),
    max_leaves=8,
)


@st.composite
def bodies(draw: st.DrawFn, names: st.SearchStrategy[str]) -> bytes:
    """A completion's body with fields that nobody knows, before, between and after."""
    parts = [draw(members(VALUES, names)), '"prompt" : "hi"', draw(members(VALUES, names))]
    inside = ",".join(part for part in parts if part.strip())
    return f"{draw(BLANKS)}{{{inside}}}{draw(BLANKS)}".encode()


def is_plain(text: str) -> bool:
    return json.loads(text) not in ("vllm_xargs", "prompt", "n", "max_tokens", "stream", "model")


PLAIN = strings().filter(is_plain)


def sent(body: bytes, **fields: Any) -> bytes:
    call = read_call(body, COMPLETIONS)
    additions = Additions(GatewaySettings(**fields))
    pieces = additions.to(call, "alice", ask_usage=False).added_to(body, call.document)
    return b"".join(bytes(piece) for piece in pieces)


@settings(max_examples=150)
@given(body=bodies(PLAIN))
def test_only_our_field_is_added(body: bytes) -> None:
    at = body.rindex(b"}")
    with_it = sent(body)

    assert with_it == body[:at] + b',"vllm_xargs":{"fair_client":"alice"}' + body[at:]
    assert list(json.loads(with_it).items())[:-1] == list(json.loads(body).items())
    assert json.loads(with_it)["vllm_xargs"] == OURS


@settings(max_examples=150)
@given(body=bodies(PLAIN | SPELT))
def test_whatever_came_under_our_name_ours_is_what_every_reader_finds(body: bytes) -> None:
    """Readers differ in which of two equal names they believe: there is only one left."""
    theirs = json.loads(body)
    seen: list[tuple[str, Any]] = []
    found = json.loads(
        sent(body), object_pairs_hook=lambda pairs: seen.append(pairs) or dict(pairs)
    )

    names = [name for name, _ in seen[-1]]
    assert names.count("vllm_xargs") == 1
    assert found["vllm_xargs"]["fair_client"] == "alice"
    inside = theirs.pop("vllm_xargs", None)
    if isinstance(inside, dict):
        assert found["vllm_xargs"] == {**inside, **OURS}
    found.pop("vllm_xargs")
    assert found == theirs


@settings(max_examples=60)
@given(body=bodies(PLAIN | SPELT))
def test_nothing_is_added_where_nothing_is_to_be(body: bytes) -> None:
    assert sent(body, identity_field="none") == body
    embedded = body.replace(b'"prompt"', b'"input"')
    call = read_call(embedded, EMBEDDINGS)
    pieces = Additions(GatewaySettings()).to(call, "alice", ask_usage=False)
    assert b"".join(pieces.added_to(embedded, call.document)) == embedded


@settings(max_examples=60)
@given(body=bodies(PLAIN | SPELT))
def test_what_is_read_is_what_the_standard_library_reads(body: bytes) -> None:
    """One reader that believed another value than the engine's would be a way around a limit."""
    document, ours = json.loads(body), orjson.loads(body)

    assert list(document) == list(ours)
    assert read_call(body, COMPLETIONS).parts == [document["prompt"]]


def test_what_no_engine_could_hold_is_refused() -> None:
    """The standard library reads both, and fails later, when the text is encoded or computed with."""
    for body in (b'{"prompt":"hi","x":"\\ud83d"}', b'{"prompt":"hi","x":1e400}'):
        assert json.loads(body)
        with pytest.raises(BadRequest, match="not valid JSON"):
            read_call(body, COMPLETIONS)

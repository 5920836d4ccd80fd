"""Bodies on their way to an engine: byte for byte but for the fields of ours, whatever JSON they are."""

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints.openai import COMPLETIONS, EMBEDDINGS
from fairhit.gateway.api.injected_fields import FieldInjector
from fairhit.gateway.api.request_body import parse_body
from fairhit.gateway.settings import GatewaySettings

OURS = {"fair_client": "alice"}
# Where the plug-ins look for the client.
HOLDERS = {"vllm_xargs", "custom_params"}
# The name of our field as it may be spelt in JSON, and names that the gateway reads.
SPELT = ('"vllm_xargs"', r'"vllm_x\u0061rgs"', r'"\u0076llm_xargs"')
READ = HOLDERS | {
    "prompt",
    "input",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "model",
    "user",
}

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
MEMBERS = st.lists(st.tuples(TEXTS, VALUES), max_size=3)


def written(value: Any, rng: random.Random) -> str:
    """JSON as some library may write it: blanks anywhere, escapes or none, a name twice."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if isinstance(value, list):
        return f"[{','.join(spaced(written(one, rng), rng) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{members(list(value.items()), rng)}}}"
    return json.dumps(value).upper() if isinstance(value, float) else json.dumps(value)


def spaced(text: str, rng: random.Random) -> str:
    return rng.choice(("", " ", "\t", "\r\n")) + text + rng.choice(("", " ", "\n"))


def members(pairs: list[tuple[str, Any]], rng: random.Random) -> str:
    twice = pairs + [pair for pair in pairs if rng.random() < 0.2]
    return ",".join(
        spaced(written(name, rng), rng) + ":" + spaced(written(value, rng), rng)
        for name, value in twice
    )


def body_of(
    before: list[tuple[str, Any]],
    after: list[tuple[str, Any]],
    seed: int,
    theirs: Any = None,
    spelt: tuple[str, ...] = SPELT,
) -> bytes:
    """A completion's body with fields that no engine knows before and after its prompt.

    `theirs` is what the caller sends under our name, spelt in some way.
    """
    rng = random.Random(seed)
    unknown = [[pair for pair in pairs if pair[0] not in READ] for pairs in (before, after)]
    parts = [members(unknown[0], rng), '"prompt" : "hi"', members(unknown[1], rng)]
    if theirs is not None:
        for _ in range(rng.randint(1, 2)):
            ours = f"{rng.choice(spelt)}:{written(theirs, rng)}"
            parts.insert(rng.randint(0, len(parts)), ours)
    return spaced("{" + ",".join(part for part in parts if part) + "}", rng).encode()


PLAIN = st.builds(body_of, MEMBERS, MEMBERS, st.integers(0, 1 << 16))
CLAIMING = st.builds(body_of, MEMBERS, MEMBERS, st.integers(0, 1 << 16), VALUES)
# To be another client, in either engine's field, or to say nothing of that there.
PRETENDING = st.builds(
    body_of,
    MEMBERS,
    MEMBERS,
    st.integers(0, 1 << 16),
    st.sampled_from(({"fair_client": "bob", "k": 1}, {"fair_client": 7}, {"k": "1"}, {}, "x")),
    st.sampled_from((SPELT, ('"custom_params"', r'"custom_p\u0061rams"'))),
)


NAMING = FieldInjector(GatewaySettings())
NAMELESS = FieldInjector(GatewaySettings(identity_field="none"))
FOR_SGLANG = FieldInjector(GatewaySettings(identity_field="sglang"))


FOR_BOTH = FieldInjector(GatewaySettings(identity_field="both"))


def sent(body: bytes, injector: FieldInjector = NAMING) -> bytes:
    call = parse_body(body, COMPLETIONS)
    pieces = injector.fields(call, "alice", ask_usage=False).added_to(body, call.document)
    return b"".join(bytes(piece) for piece in pieces)


@settings(max_examples=60, deadline=None)
@given(body=PLAIN)
def test_only_our_field_is_added(body: bytes) -> None:
    at = body.rindex(b"}")
    with_it = sent(body)

    assert with_it == body[:at] + b',"vllm_xargs":{"fair_client":"alice"}' + body[at:]
    assert list(json.loads(with_it).items())[:-1] == list(json.loads(body).items())
    assert json.loads(with_it)["vllm_xargs"] == OURS


@settings(max_examples=60, deadline=None)
@given(body=PLAIN | CLAIMING)
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


def test_sglang_receives_the_client_in_its_own_field() -> None:
    """Its plug-in reads `custom_params`; what a caller claims there is not believed."""
    body = b'{"prompt":"a","custom_params":{"fair_client":"bob","k":1},"vllm_xargs":{"x":2}}'

    assert json.loads(sent(body, FOR_SGLANG)) == {
        "prompt": "a",
        "custom_params": {"fair_client": "alice", "k": 1},
        "vllm_xargs": {"x": 2},
    }


def test_in_a_fleet_of_both_each_finds_the_client_in_its_own_field() -> None:
    """Which engine gets the body is not known when it is made; neither believes the caller."""
    body = b'{"prompt":"a","custom_params":{"fair_client":"bob","k":1}}'

    assert json.loads(sent(body, FOR_BOTH)) == {
        "prompt": "a",
        "custom_params": {"fair_client": "alice", "k": 1},
        "vllm_xargs": OURS,
    }
    assert sent(b'{"prompt":"a"}', FOR_BOTH) == (
        b'{"prompt":"a","vllm_xargs":{"fair_client":"alice"},"custom_params":{"fair_client":"alice"}}'
    )


@settings(max_examples=30, deadline=None)
@given(body=PLAIN | CLAIMING)
def test_nothing_is_added_where_nothing_is_to_be(body: bytes) -> None:
    """What came under our name, and claims nothing, may be spelt anew."""
    if b"fair_client" in body or b"\\u" in body:
        assert json.loads(sent(body, NAMELESS)) == json.loads(body)
        return
    assert sent(body, NAMELESS) == body
    embedded = body.replace(b'"prompt"', b'"input"')
    call = parse_body(embedded, EMBEDDINGS)
    pieces = NAMING.fields(call, "alice", ask_usage=False)
    assert b"".join(pieces.added_to(embedded, call.document)) == embedded


@pytest.mark.parametrize("injector", [NAMING, NAMELESS, FOR_SGLANG, FOR_BOTH])
@settings(max_examples=30, deadline=None)
@given(body=PRETENDING)
def test_no_engine_receives_the_name_that_a_caller_claims(
    injector: FieldInjector, body: bytes
) -> None:
    """Whichever field an engine reads, and whichever the gateway writes, or none: there may be a plug-in.

    Nor in the first of two equal names, for readers that believe that.
    """
    found = json.loads(sent(body, injector), object_pairs_hook=said_of_clients)
    assert found <= {"alice"}

    embedded = body.replace(b'"prompt"', b'"input"')
    call = parse_body(embedded, EMBEDDINGS)
    pieces = injector.fields(call, "alice", ask_usage=False).added_to(embedded, call.document)
    whole = b"".join(map(bytes, pieces))
    assert json.loads(whole, object_pairs_hook=said_of_clients) == set()
    theirs, ours = json.loads(embedded), json.loads(whole)
    for name in HOLDERS:
        if isinstance(theirs.get(name), dict):
            theirs[name].pop("fair_client", None)
    assert ours == theirs


def said_of_clients(pairs: list[tuple[str, Any]]) -> set[Any]:
    """Every client that some object within these names."""
    return set().union(
        *(said for _, said in pairs if isinstance(said, set)),
        (said for name, said in pairs if name == "fair_client" and not isinstance(said, list)),
    )


def test_a_field_that_claims_nothing_is_not_written_anew() -> None:
    """`custom_params` has other uses: such a body goes on in two pieces, not parsed again."""
    body = b'{"custom_params" :{"k": 1e2},"prompt":"a"}'

    assert sent(body, NAMELESS) == body
    assert sent(body, NAMING) == body[:-1] + b',"vllm_xargs":{"fair_client":"alice"}}'


@settings(max_examples=30, deadline=None)
@given(body=PLAIN | CLAIMING)
def test_what_is_read_is_what_the_standard_library_reads(body: bytes) -> None:
    """One reader that believed another value than the engine's would be a way around a limit."""
    document, ours = json.loads(body), orjson.loads(body)

    assert list(document) == list(ours)
    assert parse_body(body, COMPLETIONS).parts == [document["prompt"]]


def test_what_no_engine_could_hold_is_refused() -> None:
    """The standard library reads both, and fails later, when the text is encoded or computed with."""
    for body in (b'{"prompt":"hi","x":"\\ud83d"}', b'{"prompt":"hi","x":1e400}'):
        assert json.loads(body)
        with pytest.raises(BadRequest, match="not valid JSON"):
            parse_body(body, COMPLETIONS)

"""Long bodies: read in steps, each field where a parser finds it, and what is read of them is JSON."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairhit.errors import BadRequest
from fairhit.gateway.api import long_body as long_bodies
from fairhit.gateway.api.endpoints.openai import CHAT, COMPLETIONS
from fairhit.gateway.api.long_body import Outline, _cut, is_short, outline
from fairhit.gateway.api.request_body import InjectedFields, parse_long_body
from fairhit.gateway.http.read_budget import ITERATION, STEP

TEXT = st.text(st.sampled_from('ab"\\{}[],:é😀\n\u2028 '), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(TEXT, one, max_size=4),
    max_leaves=12,
)


def outlined(body: bytes) -> tuple[Outline, int]:
    """The outline, and in how many steps."""
    steps, count = outline(body), 0
    while True:
        try:
            length = next(steps)
        except StopIteration as stop:
            return stop.value, count
        assert 0 < length <= STEP
        count += 1


def small_steps(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(long_bodies, "STEP", length)


@given(
    document=st.dictionaries(TEXT, JSON, max_size=5),
    ascii_only=st.booleans(),
    step=st.integers(1, 9),
)
def test_the_outline_is_what_a_parser_finds(
    document: dict[str, Any], ascii_only: bool, step: int
) -> None:
    """Wherever a step ends: within an escape, a character, a number, between two brackets."""
    body = json.dumps(document, ensure_ascii=ascii_only, indent=1).encode()
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_steps(monkeypatch, step)
        found, _ = outlined(body)

    assert [field.name for field in found.fields] == list(document)
    for field in found.fields:
        assert json.loads(body[field.begin : field.end]) == document[field.name]


def loads(data: bytes) -> Any:
    """JSON that the gateway's parser accepts; integers beyond 64 bits, which it reads as floats, exactly."""
    orjson.loads(data)
    return json.loads(data)


@given(value=JSON, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
@example(value=-9223372036854775809, ascii_only=True, indent=None)
@example(value=["😀"] * 2, ascii_only=True, indent=None)
def test_a_value_is_cut_anywhere_to_a_beginning_of_it(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    """Names lose their values and strings their ends, but nothing is there that was not."""
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    for end in range(len(written) + 1):
        kept, left = _cut(written[:end], 1000, is_whole=end == len(written))
        assert is_beginning(loads(kept), value), (written, end, kept)
        assert left <= 1000
    for lists in range(4):
        kept, _ = _cut(written, lists, is_whole=True)
        assert is_beginning(loads(kept), value)
        assert lists_in(orjson.loads(kept)) <= lists


def is_beginning(kept: Any, value: Any) -> bool:
    if kept is None or kept == value:
        return True
    if isinstance(kept, str):
        return isinstance(value, str) and value.startswith(kept)
    if isinstance(kept, list):
        return isinstance(value, list) and all(map(is_beginning, kept, value[: len(kept)]))
    if isinstance(kept, dict):
        pairs = zip(kept.items(), list(value.items())[: len(kept)], strict=True)
        return all(a[0] == b[0] and is_beginning(a[1], b[1]) for a, b in pairs)
    return False


def lists_in(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(lists_in, value.values()))
    return 1 + sum(map(lists_in, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,}', b'{"a":1}x', b"{a:1}", b'{"a":[}',
     b'{"a":"', b'{"a":"\\', b'{"a" 1}', b'{"a":1 "b":2}', b'{,}', b'{"\xff":1}', '{"a":1}'.encode("utf-16"),
     b'{"a":}', b'{"a":[[1]', b'\xef\xbb\xbf{}'],
)  # fmt: skip
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        outlined(body)


WORST = {
    "text": b'{"messages":[{"role":"user","content":"%b"}],"model":"m"}'
    % (b"word\\n" * (16 << 20 >> 3)),
    "quotes": b'{"prompt":"%b","model":"m"}' % (b'\\"' * (8 << 20)),
    "tokens": b'{"prompt":[%b7],"model":"m"}' % (b"7," * (8 << 20)),
    "strings": b'{"prompt":[%b"a"],"model":"m"}' % (b'"a",' * (4 << 20)),
    "blanks": b'{"prompt":"x",%b"model":"m"}' % (b" " * (16 << 20)),
    "colons": b'{"prompt"%b:%b"x","model":"m"}' % (b" " * (8 << 20), b"\n" * (8 << 20)),
    "fields": b'{"prompt":{%b"a":1},"model":"m"}' % (b'"b":1,' * (1 << 20)),
    "lists": b'{"prompt":[%b[]],"model":"m"}' % (b"[]," * 250_000),
}


@pytest.mark.parametrize("name", WORST)
def test_no_step_reads_more_than_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the work is done: bytes that expressions see, and those that a parser does."""
    body = WORST[name]
    seen: list[int] = []
    for pattern in ("_BLANKS", "_SCALAR", "_CHARACTERS", "_FLAT"):
        monkeypatch.setattr(long_bodies, pattern, Noting(getattr(long_bodies, pattern), seen))
    steps = outline(body)
    while True:
        try:
            length = next(steps)
        except StopIteration as stop:
            found: Outline = stop.value
            break
        assert sum(seen) <= 2 * STEP + 64, "the step before"
        seen.clear()
        assert length <= STEP
    short = found.shortened(body)

    assert len(short) <= ITERATION + 100
    document = orjson.loads(short)
    assert document["model"] == "m"
    assert lists_in(document) <= long_bodies._MAX_PARSED + 1
    assert len(short) > ITERATION // 2 or name in {"blanks", "colons", "lists"}, (
        "as much as there is time for"
    )


class Noting:
    """An expression that notes how many bytes it went over."""

    def __init__(self, pattern: Any, seen: list[int]) -> None:
        self._pattern = pattern
        self._seen = seen

    def match(self, body: bytes, at: int, until: int) -> Any:
        found = self._pattern.match(body, at, until)
        if until - at < 2 * STEP:
            self._seen.append((found.end() if found else at) - at)
        return found


def test_too_many_lists_are_refused() -> None:
    """They would take a parser, here and in the engine, longer than any prompt."""
    with pytest.raises(BadRequest, match="lists and objects"):
        outlined(b'{"prompt":[%b[]]}' % (b"[]," * 300_000))
    with pytest.raises(BadRequest, match="fields"):
        outlined(b"{%b}" % b",".join(b'"%d":1' % n for n in range(2_000)))


def test_short_is_what_is_parsed_soon() -> None:
    assert is_short(b"[]" * (STEP // 2))
    assert is_short(b"x" * ITERATION)
    assert not is_short(b"[]" * (STEP // 2 + 1))
    assert not is_short(b"x" * (ITERATION + 1))


def test_a_long_prompt_is_read_as_far_as_there_is_time_and_counts_in_full() -> None:
    body = WORST["text"]
    call = parse_long_body(body, outlined(body)[0], CHAT)

    assert call.model == "m"
    assert call.parts[0] == "user"
    assert call.parts[1].startswith("word\nword\n")
    length = len(call.text())
    assert 0.7 * ITERATION < length <= ITERATION
    assert abs(length * (1 + call.unparsed) / 5 * 6 - len(body)) < 0.01 * len(body)


@pytest.mark.parametrize("given", [{"fair_client": "x", "keep": 2**70}, 7, None])
def test_ours_replaces_what_a_long_body_claims(given: object) -> None:
    """Wherever it stands and however often; the rest goes on byte for byte."""
    rest = b'"prompt":"%b"' % (b"p" * 50)
    claim = b'"vllm_xar\\u0067s": %b' % json.dumps(given).encode()
    for body in (b"{%b,%b}" % (claim, rest), b"{%b , %b, %b }\n" % (claim, rest, claim)):
        fields = InjectedFields({"vllm_xargs": {"fair_client": "me"}, "cache_salt": "s"})
        found, _ = outlined(body)
        whole = b"".join(fields.added_to(body, {}, found))
        sent = json.loads(whole)

        expected = {"fair_client": "me"} | ({"keep": 2**70} if isinstance(given, dict) else {})
        assert sent == {"prompt": "p" * 50, "cache_salt": "s", "vllm_xargs": expected}
        assert rest in whole
        assert b"x" not in whole.replace(b"vllm_xar", b"").replace(b"fair_client", b"")


def test_a_claim_is_taken_out_where_nothing_is_added() -> None:
    body = b'{"custom_params":{"fair_client":"x","k":1},"prompt":"p"}'
    assert json.loads(b"".join(InjectedFields({}).added_to(body, {}, outlined(body)[0]))) == {
        "custom_params": {"k": 1}, "prompt": "p",
    }  # fmt: skip
    plain = b'{ "prompt":"p" }'
    assert b"".join(InjectedFields({}).added_to(plain, {}, outlined(plain)[0])) == plain
    assert (
        b"".join(InjectedFields({"a": 1}).added_to(b"{ }", {}, outlined(b"{ }")[0])) == b'{ "a":1}'
    )


def test_a_field_too_long_to_be_written_anew_is_refused() -> None:
    body = b'{"vllm_xargs":{"a":"%b"}}' % (b"x" * STEP)
    with pytest.raises(BadRequest, match="vllm_xargs may have"):
        InjectedFields({}).added_to(body, {}, outlined(body)[0])


def test_a_batch_of_tokens_counts_all_of_them() -> None:
    body = WORST["tokens"]
    call = parse_long_body(body, outlined(body)[0], COMPLETIONS)

    assert call.tokens is not None
    assert abs(len(call.tokens) // 4 * (1 + call.unparsed) - (8 << 20)) < 1_000

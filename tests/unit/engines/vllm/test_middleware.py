"""ClientIdentity as an ASGI application sees it: what a caller sends, what the engine reads."""

import asyncio
import json

import pytest

from fairhit.engines.vllm import middleware
from fairhit.engines.vllm.middleware import ClientIdentity, read_keys
from fairhit.errors import ConfigError

KEYS = {"FAIRHIT_KEYS": "alice:key-a, bob:key-b"}
CHAT = "/v1/chat/completions"


class Call:
    """A HTTP request through the middleware; `seen` is the body that the engine read."""

    def __init__(
        self, body=b"", *, path=CHAT, key="key-a", method="POST", media="application/json"
    ):
        headers = [(b"content-type", media.encode())] if media else []
        if key is not None:
            headers.append((b"authorization", b"Bearer " + key.encode()))
        headers += [(b"content-length", b"%d" % len(body)), (b"x-other", b"kept")]
        self.scope = {"type": "http", "method": method, "path": path, "headers": headers}
        half = len(body) // 2
        self.messages = [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:], "more_body": False},
            {"type": "http.disconnect"},
        ]
        self.seen = self.engine_scope = self.after = None
        self.sent = []

    async def engine(self, scope, receive, send):
        self.engine_scope = scope
        message = await receive()
        self.seen = message["body"]
        self.after = await receive()

    def run(self, environ=KEYS):
        async def receive():
            return self.messages.pop(0)

        async def send(message):
            self.sent.append(message)

        asyncio.run(ClientIdentity(self.engine, environ)(self.scope, receive, send))
        return self

    @property
    def client(self):
        return json.loads(self.seen)["vllm_xargs"]["fair_client"]

    @property
    def refused(self):
        assert self.seen is None
        return self.sent[0]["status"], json.loads(self.sent[1]["body"])["error"]


def test_the_key_decides_whose_request_it_is():
    assert Call(b'{"prompt":"x"}').run().client == "alice"
    assert Call(b'{"prompt":"x"}', key="key-b").run().client == "bob"


SPOOFS = [
    b'{"vllm_xargs":{"fair_client":"bob"}}',
    b'{"vllm_xargs":{"fair_client":"bob"},"vllm_xargs":{"fair_client":"bob"}}',
    rb'{"vllm_xa\u0072gs":{"fair_cli\u0065nt":"bob"}}',
    b'{"vllm_xargs":{"fair_client":"x","fair_client":"bob"}}',
    b'{"vllm_xargs":null}',
    '{"vllm_xargs":{"fair_client":"bob"}}'.encode("utf-16"),
    b'\xef\xbb\xbf{"vllm_xargs":{"fair_client":"bob"}}',
    b'{"n":NaN,"vllm_xargs":{"fair_client":"bob"}}',
]


@pytest.mark.parametrize("body", SPOOFS)
def test_what_a_caller_says_of_itself_is_overwritten(body):
    call = Call(body).run()
    if call.seen is None:
        assert call.refused[0] == 400
    else:
        assert call.seen.count(b"fair_client") == 1
        assert b"bob" not in call.seen
        assert call.client == "alice"


def test_everything_else_in_the_body_stays():
    body = {"messages": [{"content": "grüß \ud800 \U0001f600"}], "vllm_xargs": {"session_id": "s"}}

    call = Call(json.dumps(body).encode()).run()

    body["vllm_xargs"] = {"session_id": "s", "fair_client": "alice"}
    assert body == json.loads(call.seen)
    assert (b"content-length", b"%d" % len(call.seen)) in call.engine_scope["headers"]
    assert (b"x-other", b"kept") in call.engine_scope["headers"]


def test_token_level_requests_carry_it_where_the_engine_reads_it():
    body = b'{"token_ids":[1],"sampling_params":{"extra_args":{"fair_client":"bob"}}}'

    seen = json.loads(Call(body, path="/inference/v1/generate").run().seen)

    assert seen["sampling_params"]["extra_args"] == {"fair_client": "alice"}


def test_where_identity_means_nothing_it_is_taken_out_but_not_put_in():
    seen = json.loads(Call(b'{"input":"x"}', path="/v1/embeddings").run().seen)
    assert seen == {"input": "x"}
    body = b'{"input":"x","vllm_xargs":{"fair_client":"bob"}}'
    assert b"bob" not in Call(body, path="/v1/embeddings").run().seen


@pytest.mark.parametrize("key", [None, "", "key-c", "key-a key-a", "alice:key-a"])
def test_without_a_known_key_the_answer_is_401_and_no_hint(key):
    status, error = Call(b'{"prompt":"x"}', key=key).run().refused

    assert status == 401
    assert error["code"] == "invalid_api_key"
    assert "alice" not in error["message"]


def test_two_keys_are_no_key():
    call = Call(b"{}")
    call.scope["headers"].append((b"Authorization", b"Bearer key-b"))
    assert call.run().refused[0] == 401


@pytest.mark.parametrize(
    ("body", "media", "param"),
    [
        (b'{"prompt":', "application/json", None),
        (b'{"vllm_xargs":"fair_client=bob"}', "application/json", "vllm_xargs"),
        (b"vllm%5Fxargs=%7B%7D", "application/x-www-form-urlencoded", "vllm_xargs"),
        (b'--b\r\nname="vllm_xargs"\r\n', "multipart/form-data; boundary=b", "vllm_xargs"),
        (b"x", "multipart/form-data; boundary=b; charset=utf-7", "charset"),
        (b"x", 'multipart/form-data; boundary=b; CharSet = "utf-16"', "charset"),
        (b"x", "multipart/form-data; charset=utf-8; charset=utf-7; boundary=b", "charset"),
        (b"x", "multipart/form-data; boundary=b; charset*0=utf; charset*1=-7", "charset"),
        (b'form-data; name*0="vllm_"; name*1="xargs"', "multipart/form-data; boundary=b", "name"),
        (b"[" * 100_000, "", None),
    ],
)
def test_what_cannot_be_made_sure_is_refused(body, media, param):
    status, error = Call(body, media=media).run().refused
    assert status == 400
    assert error["param"] == param


@pytest.mark.parametrize("charset", ["", "; charset=utf-8", '; charset="UTF8"'])
def test_an_upload_without_arguments_passes_untouched(charset):
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nsound\r\n--b--'
    path = "/v1/audio/transcriptions"
    media = f"multipart/form-data{charset}; boundary=b"
    assert Call(body, path=path, media=media).run().seen == body


def test_a_body_beyond_the_limit_is_413(monkeypatch):
    monkeypatch.setattr(middleware, "MAX_BODY_BYTES", 100)
    assert Call(b'{"prompt":"' + b"x" * 200 + b'"}').run().refused[0] == 413


def test_probes_and_scrapes_need_no_key():
    for path in ("/health", "/metrics"):
        assert Call(path=path, key=None, method="GET").run().sent == []
    assert Call(path="/v1/models", key=None, method="GET").run().refused[0] == 401
    assert Call(path="/health", key=None, method="POST").run().refused[0] == 401


def test_a_caller_who_leaves_still_reaches_the_engine():
    """vLLM aborts a request when its `receive` says so; the middleware must not swallow that."""
    assert Call(b"{}").run().after == {"type": "http.disconnect"}


def test_a_caller_who_leaves_in_mid_body_never_gets_there():
    call = Call(b'{"prompt":"x"}')
    call.messages[1] = {"type": "http.disconnect"}
    assert call.run().engine_scope is None
    assert call.sent == []


def test_a_websocket_needs_a_key_too():
    call = Call(key=None)
    call.scope["type"] = "websocket"
    call.run()
    assert call.sent == [{"type": "websocket.close", "code": 1008}]


def test_keys_from_a_file(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# who: key\n\nalice: k1\nalice: k2\nteam/bob@x: k3:with:colons\n")
    clients = set(read_keys({"FAIRHIT_KEYS_FILE": str(keys)}).values())
    assert clients == {"alice", "team/bob@x"}
    call = Call(b"{}", key="k3:with:colons").run({"FAIRHIT_KEYS_FILE": str(keys)})
    assert call.client == "team/bob@x"


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({}, "no keys"),
        ({"FAIRHIT_KEYS": "alice"}, "FAIRHIT_KEYS entry 1: expected client:key"),
        ({"FAIRHIT_KEYS": "a:k,b b:k2"}, "FAIRHIT_KEYS entry 2: expected client:key"),
        ({"FAIRHIT_KEYS": "a:k,b:k"}, "belongs to another client"),
        ({"FAIRHIT_KEYS_FILE": "/nowhere/keys"}, "FAIRHIT_KEYS_FILE: cannot read /nowhere/keys"),
    ],
)
def test_wrong_keys_are_one_line_that_shows_none(environ, line):
    with pytest.raises(ConfigError) as wrong:
        read_keys(environ)
    assert line in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert "k2" not in str(wrong.value)


def test_vllm_asking_for_the_class_without_keys_stops_the_server(monkeypatch):
    """vLLM builds middleware while it serves, where an error would be a 500 for everyone."""
    monkeypatch.delenv("FAIRHIT_KEYS", raising=False)
    monkeypatch.delenv("FAIRHIT_KEYS_FILE", raising=False)
    from fairhit.engines import vllm as plug_in

    with pytest.raises(SystemExit, match="fairhit: ClientIdentity: no keys"):
        _ = plug_in.ClientIdentity

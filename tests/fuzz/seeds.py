"""Seeds of the fuzzers: the corpora of requests and answers, some streams and bodies."""

import random

from tests.e2e.gateway.scripts import chat, events
from tests.fuzz.targets import SEED_LEN
from tests.wire import answers, requests

_STREAMS = (
    b"".join(events(usage=True)),
    b"".join(events(usage=True)).replace(b"\n\n", b"\r\n\r\n"),
    (
        b'event: message_start\ndata: {"message":{"usage":{"input_tokens":5}}}\n\n'
        b'event: content_block_delta\ndata: {"delta":{"text":"a\\ud83d"}}\n\n'
        b'event: message_delta\ndata: {"usage": {"output_tokens": 3}}\n\n'
    ),
    b'data: {"type":"response.completed","response":{"usage": {"input_tokens":5,"output_tokens":1}}}\n\n',
    (
        b'event: response.created\ndata: {"response":{}}\n\nevent: response.in_progress\ndata: {}\n\n'
        b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n'
    ),
    b'event: response.created\r\ndata: {"response":{}}\r\n\r\nevent: response.queued\r\ndata: {}\r\n\r\n',
)
_BODIES = (
    chat(stream=True, stream_options={"include_usage": None}, n=2),
    chat(vllm_xargs={"fair_client": "bob", "other": 1}, cache_salt="x", user="u"),
    b'{"\\u0076llm_xargs":{"f\\u0061ir_client":"bob"},"messages":[{"role":"user","content":[]}]}',
    b'{"prompt":[[1,2],[3]],"max_tokens":1e400,"cache_salt":["a"],"vllm_xargs":null}',
    b'{"messages":[{"role":"user","content":[{"type":{}},{"type":["text"],"text":"a"}]}],"n":[]}',
    b'{"input":"x","instructions":7,"tools":[{}],"query":"a","documents":[{"text":"b"}]}',
    b'{"system":[{"type":"text","text":"s","cache_control":{}}],"messages":[{"role":"user","content":"x"}]}',
)
SEEDS: dict[str, list[bytes]] = {
    "requests": [row.data for row in requests.ROWS],
    "answers": [b"".join(row.pieces)[:4000] for row in answers.ROWS],
    "streams": list(_STREAMS),
    "bodies": list(_BODIES),
}


def seeded(name: str) -> list[bytes]:
    """The seeds of a target, as it takes them, in several cuts."""
    return [bytes([cut]) * SEED_LEN + seed for seed in SEEDS[name] for cut in (0, 1)]


def mutants(name: str, *, count: int, seed: int) -> list[bytes]:
    """Seeds changed here and there: bytes lost, doubled, moved, taken from another seed."""
    rng, seeds = random.Random(seed), SEEDS[name]
    return [rng.randbytes(SEED_LEN) + _changed(rng, seeds) for _ in range(count)]


def _changed(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + rng.choice((0, 1, 1, 8, 400)))
        other = rng.choice(seeds)
        begin = rng.randrange(len(other) + 1)
        data[at:end] = rng.choice((
            b"", bytes(data[at:end]) * 2, rng.randbytes(1), other[begin : begin + rng.randrange(40)],
            rng.choice((b"\r\n", b"\n", b"\r", b" ", b"\0", b"0", b":", b'"', b"\r\n\r\n")),
        ))  # fmt: skip
    return bytes(data)

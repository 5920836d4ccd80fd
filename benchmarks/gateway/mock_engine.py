"""An engine that costs next to nothing: it answers at once, so that what is measured is the gateway.

Each streamed event says when it was written, in nanoseconds of the machine's monotonic clock. A request with
"slow":true is answered after a while, so that others wait for it.

`python -m benchmarks.gateway.mock_engine PORT [PORT...]` serves on each port until it is killed.
"""

import asyncio
import sys
import time

import uvloop

MODEL = b"mock"
_MODELS = b'{"object":"list","data":[{"id":"%b","object":"model"}]}' % MODEL
_USAGE = (
    b'"usage":{"prompt_tokens":500,"total_tokens":550,"completion_tokens":50,'
    b'"prompt_tokens_details":{"cached_tokens":384}}'
)
_ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"%b","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}],%b}'
    % (MODEL, b"word " * 50, _USAGE)
)
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"%b","choices":'
    b'[{"index":0,"delta":{"content":" %%d"},"logprobs":null,"finish_reason":null}]}\n\n' % MODEL
)
_LAST = b'data: {"id":"chatcmpl-1","choices":[],%b}\n\n' % _USAGE
STREAM_TOKENS, STREAM_INTERVAL_S = 200, 0.02
SLOW_S = 0.01  # until the answer to a request with "slow":true


def _whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token() -> bytes:
    """Format one streamed event that carries the current time."""
    return _chunk(_EVENT % time.monotonic_ns())


MODELS_REPLY, ANSWER_REPLY = _whole(_MODELS), _whole(_ANSWER)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAM_END = _chunk(_LAST) + _chunk(b"data: [DONE]\n\n") + _chunk(b"")


class MockEngine(asyncio.Protocol):
    """Trusts its peer: whole heads, and content-length in lower case."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.buffer = bytearray()
        self.needed = 0

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.needed:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.buffer.find(b"content-length: ")
            length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)]) if at >= 0 else 0
            self.needed = end + 4 + length
        if len(self.buffer) >= self.needed:
            self.answer(bytes(self.buffer))
            self.buffer.clear()
            self.needed = 0

    def answer(self, request: bytes) -> None:
        if request.startswith(b"GET"):
            self.transport.write(MODELS_REPLY)
        elif b'"stream":true' in request:
            self.transport.write(STREAM_HEAD)
            self.stream(STREAM_TOKENS)
        elif b'"slow":true' in request:
            asyncio.get_running_loop().call_later(SLOW_S, self.transport.write, ANSWER_REPLY)
        else:
            self.transport.write(ANSWER_REPLY)

    def stream(self, left: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(token() if left else STREAM_END)
        if left:
            asyncio.get_running_loop().call_later(STREAM_INTERVAL_S, self.stream, left - 1)


async def serve(ports: list[int]) -> None:
    """For ever."""
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(MockEngine, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(port) for port in sys.argv[1:]]))

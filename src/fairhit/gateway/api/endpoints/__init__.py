"""Endpoints: the paths whose requests go to an engine. A new one is an `Endpoint` and a line below."""

from fairhit.gateway.api.endpoints.endpoint import Endpoint
from fairhit.gateway.api.endpoints.messages import MESSAGES
from fairhit.gateway.api.endpoints.openai import (
    CHAT,
    COMPLETIONS,
    COUNT_TOKENS,
    EMBEDDINGS,
    SCORING,
    TOKENIZE,
)
from fairhit.gateway.api.endpoints.responses import RESPONSES

ENDPOINTS: dict[bytes, Endpoint] = {
    b"/v1/chat/completions": CHAT,
    b"/v1/completions": COMPLETIONS,
    b"/v1/embeddings": EMBEDDINGS,
    b"/v1/messages": MESSAGES,
    b"/v1/messages/count_tokens": COUNT_TOKENS,
    b"/v1/responses": RESPONSES,
    **dict.fromkeys((b"/score", b"/v1/score"), SCORING),
    **dict.fromkeys((b"/rerank", b"/v1/rerank", b"/v2/rerank"), SCORING),
    **dict.fromkeys((b"/tokenize", b"/detokenize"), TOKENIZE),
}


def path_of(target: bytes) -> bytes:
    """The path of a target, without its query."""
    return target.partition(b"?")[0] if b"?" in target else target


def endpoint_of(target: bytes) -> Endpoint | None:
    """The endpoint of a target; None for paths of the gateway itself. O(1)."""
    return ENDPOINTS.get(path_of(target))


__all__ = ["ENDPOINTS", "Endpoint", "endpoint_of", "path_of"]

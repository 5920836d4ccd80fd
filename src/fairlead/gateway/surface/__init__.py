"""The paths that go to an engine. A new one is a file here and a line below."""

from fairlead.gateway.surface.chat import CHAT
from fairlead.gateway.surface.completions import COMPLETIONS
from fairlead.gateway.surface.counting import COUNT_TOKENS, TOKENIZE
from fairlead.gateway.surface.embeddings import EMBEDDINGS
from fairlead.gateway.surface.messages import MESSAGES
from fairlead.gateway.surface.responses import RESPONSES
from fairlead.gateway.surface.scoring import SCORING
from fairlead.gateway.surface.surface import Surface

SURFACES: dict[bytes, Surface] = {
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
    """What a request is for, without its query."""
    return target.partition(b"?")[0] if b"?" in target else target


def surface_of(target: bytes) -> Surface | None:
    """The path's surface, None if it goes to no engine. O(1)."""
    return SURFACES.get(path_of(target))


__all__ = ["SURFACES", "Surface", "path_of", "surface_of"]

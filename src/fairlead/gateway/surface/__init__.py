"""The paths that go to an engine. A new one is a file here and a line below."""

from fairlead.gateway.surface.chat import CHAT
from fairlead.gateway.surface.completions import COMPLETIONS
from fairlead.gateway.surface.surface import Surface

SURFACES: dict[bytes, Surface] = {
    b"/v1/chat/completions": CHAT,
    b"/v1/completions": COMPLETIONS,
}


def path_of(target: bytes) -> bytes:
    """What a request is for, without its query."""
    return target.partition(b"?")[0] if b"?" in target else target


def surface_of(target: bytes) -> Surface | None:
    """The path's surface, None if it goes to no engine. O(1)."""
    return SURFACES.get(path_of(target))


__all__ = ["SURFACES", "Surface", "path_of", "surface_of"]

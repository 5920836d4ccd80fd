"""The one walk of every prefix tree here: down from a node along a prompt, as far as they agree.

A tree's node is a stretch of some prompt, `key[:end]` being the path to its end, and its children are
found by the first token behind that. Nothing is copied and no token is looked at twice.
"""

from array import array
from bisect import bisect_right
from typing import Any, Protocol, TypeVar

from fairhit.core.cache.token_runs import Runs, agree
from fairhit.core.request import Unit


class TreeEdge(Protocol):
    """A node of a prefix tree, as the walk sees it."""

    key: Runs
    end: int
    children: dict[Unit, Any] | None  # by their first token; of the node's own kind


Node = TypeVar("Node", bound=TreeEdge)


def descend(node: Node, key: Runs, end: int) -> tuple[Node, int]:
    """The deepest node that key[:end] reaches into, from one whose path it begins with; how far.

    O(runs and nodes on the way), at C speed O(end) where there are plain tokens.
    """
    spans = key.spans
    at = node.end
    place = bisect_right(key.ends, at) if at else 0
    while at < end and (children := node.children):
        span = spans[place]
        segment, shift, ends = span
        at_segment = at + shift
        child = children.get(
            segment[at_segment]
            if type(segment) is tuple or type(segment) is array
            else (segment, at_segment)
        )
        if child is None:
            break
        node = child
        stop = node.end
        # Both go on with the same token, so the span at `place` begins in both at the same place.
        if ends == stop <= end and span == node.key.spans[place]:  # most edges are one run
            at = stop
            place += 1
            continue
        at, place = agree(spans, node.key.spans, place, at, min(stop, end))
        if at < stop:
            break
    return node, at

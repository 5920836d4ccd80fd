"""The one compressed trie: nodes with edges of many tokens, and the walk, the changes and the check of it.

The edge into a node is the tokens `key[start:end]` of some prompt `key`, and `key[:end]` is the path from the
root to the node. Children are found by the first token of their edges. No token is copied. What a node means
(cached, pinned, waiting, held by a worker) is added by its owner, which makes the nodes.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from fairhit.core.cache.token_runs import Runs, agree, common_len
from fairhit.core.request import Unit

# A key with more runs and plain tokens than this is copied for nodes that need less than half of it.
LONG_KEY = 64


class PrefixNode(Protocol):
    """A node as the trie sees it; each owner has a class of its own, with its own attributes beside these."""

    parent: Any  # a node of the owner's class; None: the root, or removed
    first: Unit  # first token of the edge: the node's key in its parent's `children`
    key: Runs
    start: int
    end: int
    children: dict[Unit, Any] | None  # None is the same as empty: most nodes are leaves


Node = TypeVar("Node", bound=PrefixNode)


def descend(node: Node, key: Runs, end: int) -> tuple[Node, int]:
    """Find the deepest node whose edge key[:end] reaches, and the length up to which key agrees with it.

    `node` is where the search begins; its path must be a prefix of the key. O(runs and nodes on the way),
    at C speed O(end) for plain tokens.
    """
    spans = key.spans
    at = node.end
    index = bisect_right(key.ends, at) if at else 0
    while at < end and (children := node.children):
        span = spans[index]
        segment, shift, ends = span
        kind = type(segment)
        child = children.get(
            segment[at + shift]  # type: ignore[index] # plain tokens; `kind` saves a second call of `type`
            if kind is tuple or kind is array
            else (segment, at + shift)
        )
        if child is None:
            break
        node = child
        stop = node.end
        # Both continue with the same token, so span number `index` begins at the same position in both.
        if ends == stop <= end and span == node.key.spans[index]:  # most edges are one run
            at = stop
            index += 1
            continue
        at, index = agree(spans, node.key.spans, index, at, min(stop, end))
        if at < stop:
            break
    return node, at


def add_leaf(leaf: PrefixNode) -> None:
    """Enter a new leaf in its parent's children. O(1)."""
    children, first = leaf.parent.children, leaf.first
    if children is None:
        leaf.parent.children = {first: leaf}
    else:
        assert first not in children, first
        children[first] = leaf


def insert_above(upper: PrefixNode, node: PrefixNode) -> None:
    """Split the edge of `node` where the new node `upper`, made with the same start, ends. O(1).

    `node` stays the lower half, so that every path to it keeps its end.
    """
    at, parent = upper.end, node.parent
    assert node.start == upper.start < at < node.end and upper.parent is parent, at
    parent.children[upper.first] = upper
    node.first, node.start, node.parent = node.key.unit(at), at, upper
    upper.children = {node.first: node}


def merge_into_child(node: Node) -> Node:
    """Undo a split: remove a node with one child, whose edge grows by the node's; the child. O(1)."""
    parent = node.parent
    assert parent is not None and node.children
    (child,) = node.children.values()
    child.first, child.start, child.parent = node.first, node.start, parent
    parent.children[node.first] = child
    return child  # type: ignore[no-any-return]


def remove_leaf(leaf: Node) -> Node:
    """Remove a leaf from its parent, which is returned. O(1)."""
    parent = leaf.parent
    assert parent is not None and not leaf.children
    del parent.children[leaf.first]
    if not parent.children:
        parent.children = None
    leaf.parent = None
    return parent  # type: ignore[no-any-return]


def shorten_keys(node: PrefixNode, key: Runs) -> None:
    """Give `node` and its ancestors that need less than half of `key` a copy of their part. O(depth).

    Otherwise a node of a few tokens would keep a prompt of many in memory.
    """
    if key.bulk <= LONG_KEY or 2 * node.end >= key.length:
        return
    kept = key
    above: PrefixNode | None = node
    while above is not None and above.key is key:
        if 2 * above.end < kept.length:
            kept = key[: above.end]
        above.key = kept
        above = above.parent


def path_to(node: Node) -> Iterator[Node]:
    """Yield `node` and its ancestors up to, but without, the root."""
    while node.parent is not None:
        above = node.parent
        yield node
        node = above


def checked_nodes(root: Node) -> Iterator[Node]:
    """Yield every node, parents first, and assert that its children continue its path. O(trie)."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for first, child in (node.children or {}).items():
            assert child.parent is node and child.key[child.start] == child.first == first
            assert child.start == node.end < child.end <= len(child.key)
            assert common_len(child.key, node.key, 0, node.end) == node.end
            stack.append(child)

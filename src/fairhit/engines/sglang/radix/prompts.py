"""Prompts in the units of SGLang's radix tree: tokens, or pages of tokens, with or without a namespace.

Tokens stay in SGLang's own array: a waiting prompt takes no memory here, and is compared at C speed.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from fairhit.core.cache.token_runs import Run, Runs
from fairhit.core.request import Unit


class Namespace(NamedTuple):
    """A LoRA adapter or `cache_salt`: prompts of different namespaces share no prefix."""

    extra_key: str | None
    cache_salt: str | None


NO_NAMESPACE = Namespace(None, None)


@dataclass(frozen=True, slots=True)
class _First:
    """The first unit of a prompt in a namespace, which no prompt of another namespace begins with."""

    namespace: Namespace
    unit: Unit


def to_units(tokens: Sequence[int], page_len: int, namespace: Namespace) -> Runs:
    """Return tokens in units of the tree, without those that do not fill a page.

    An array of 8-byte integers is kept as it is, and must not change: O(1). Any other sequence, pages or a
    namespace cost O(tokens).
    """
    is_kept = isinstance(tokens, array) and tokens.typecode == "q"
    plain = cast("array[int]", tokens) if is_kept else array("q", tokens)
    units: array[int] | tuple[Unit, ...] = plain
    if page_len > 1:  # the bytes of each page: one object for a page, none for its tokens
        whole, step = plain.tobytes(), plain.itemsize * page_len
        units = tuple(whole[at : at + step] for at in range(0, len(whole) - step + 1, step))
    runs: list[Run] = [(units, 0, len(units))]
    if units and namespace != NO_NAMESPACE:
        runs = [(_First(namespace, units[0]), 0, 1), (units, 1, len(units) - 1)]
    return Runs(runs)


def to_tokens(units: Runs) -> tuple["array[int]", Namespace]:
    """Return the tokens and the namespace of a prompt in units. O(1) where `to_units` is, else O(tokens)."""
    namespace, found = NO_NAMESPACE, array("q")
    for segment, offset, length in units.runs:
        if isinstance(segment, _First):
            namespace, plain = segment.namespace, _flat((segment.unit,))
        else:
            assert not offset and isinstance(segment, (tuple, array)) and length == len(segment)
            plain = segment if isinstance(segment, array) else _flat(segment)
        found = found + plain if found else plain
    return found, namespace


def _flat(units: tuple[Any, ...]) -> "array[int]":
    """Return the tokens of pages, or the one token that begins a namespace."""
    found = array("q")
    for unit in units:
        if isinstance(unit, bytes):
            found.frombytes(unit)
        else:
            found.append(unit)
    return found

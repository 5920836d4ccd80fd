"""A prompt as the radix tree of SGLang divides it: tokens, or pages of them, in a namespace or in none."""

from array import array
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from fairlead.core.request import Unit

# Below this, prompts share their integers; a token takes 8 bytes of a waiting request then, not 36.
_SHARED = tuple(range(1 << 18))


class Namespace(NamedTuple):
    """Prompts of different namespaces share nothing: what a LoRA adapter or `cache_salt` makes."""

    extra_key: str | None
    cache_salt: str | None


class _First(NamedTuple):
    """The first unit of a prompt in a namespace: so none of another one begins with it."""

    namespace: Namespace
    unit: Unit


def to_units(tokens: "array[int]", page_len: int, namespace: Namespace) -> tuple[Unit, ...]:
    """The tokens in units of the tree; what does not fill a page is nowhere in it. O(tokens)."""
    units: tuple[Unit, ...] = _integers(tokens)
    if page_len > 1:
        whole = len(tokens) // page_len * page_len
        units = tuple(zip(*[iter(units[:whole])] * page_len, strict=True))
    if units and namespace != Namespace(None, None):
        units = (_First(namespace, units[0]), *units[1:])
    return units


def to_tokens(units: Sequence[Unit], page_len: int) -> tuple["array[int]", Namespace]:
    """The tokens of a prompt in units, and its namespace. O(tokens)."""
    namespace = Namespace(None, None)
    if units and isinstance(first := units[0], _First):
        namespace = first.namespace
        units = (first.unit, *units[1:])
    tokens = units if page_len == 1 else chain.from_iterable(units)  # type: ignore[arg-type]
    return array("q", tokens), namespace  # type: ignore[arg-type]


def _integers(tokens: "array[int]") -> tuple[int, ...]:
    """The tokens as integers that all prompts share; images have numbers beyond any vocabulary."""
    if len(tokens) > 1 and min(tokens) >= 0 and max(tokens) < len(_SHARED):
        found: tuple[int, ...] = itemgetter(*tokens)(_SHARED)
        return found
    return tuple(tokens)

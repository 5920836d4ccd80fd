"""What fits in memory, apart from who is next.

`Reserve` is the rule of the theorems (DESIGN 6.3): a request is admitted only with room for all it
may ever need, so nobody is preempted and U <= w_e * L_input + w_q * M holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.radix_tree import Path, RadixTree
from fairlead.core.request import Request, Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """An admitted request's share of memory, until `Reserve.release`."""

    path: Path
    extend_len: int
    reserved: int  # tokens that are not in the tree yet


class Reserve:
    """Admits a request if its uncached prompt and max_tokens fit in `capacity` (M, in tokens).

    Memory holds the cached tokens and what is reserved for those to come; unpinned cached tokens give
    way, except those the request itself matches. `shares`: a prompt is in the cache from its
    admission on; if not, from `prefilled` on, and who comes between computes it again.
    """

    def __init__(self, tree: RadixTree, *, capacity: int, shares: bool = True) -> None:
        self.evicted = 0  # tokens, since the beginning
        self._tree = tree
        self._capacity = capacity
        self._shares = shares
        self._reserved = 0

    def fits_ever(self, request: Request) -> bool:
        """Whether it could run alone; if not, it must be rejected on arrival."""
        return request.input_len + request.max_tokens <= self._capacity

    def admit(self, request: Request, now_us: int) -> Grant | None:
        """Memory for the request, its prefix pinned; None if it does not fit now."""
        match = self._tree.match_len(request.prompt)
        need = request.input_len - match + request.max_tokens
        free = self._capacity - self._tree.size - self._reserved
        if need > free:
            if need > free + self._tree.evictable - self._tree.unpinned_len(request.prompt):
                return None
        path = self._tree.acquire(request.prompt, now_us)
        if need > free:
            evicted = self._tree.evict(need - free)
            assert evicted == need - free, (evicted, need, free)
            self.evicted += evicted
        self._reserved += need
        # The last prompt token is always computed, or there would be nothing to sample from.
        extend_len = request.input_len - min(match, request.input_len - 1)
        grant = Grant(path=path, extend_len=extend_len, reserved=need)
        return self._cache(grant, request.prompt, now_us) if self._shares else grant

    def prefilled(self, grant: Grant, request: Request, now_us: int) -> Grant:
        """The prompt was computed: it is cached from now on, if it was not before."""
        return grant if self._shares else self._cache(grant, request.prompt, now_us)

    def emitted(self, grant: Grant, tokens: Sequence[Unit], now_us: int) -> Grant:
        """The request is done; `tokens`, its prompt and what it emitted, are cached. O(tokens)."""
        return self._cache(grant, tokens, now_us)

    def release(self, grant: Grant) -> None:
        """The request is gone: what it did not use is free, what is cached stays until evicted."""
        self._tree.release(grant.path)
        self._reserved -= grant.reserved

    def _cache(self, grant: Grant, tokens: Sequence[Unit], now_us: int) -> Grant:
        """Put the tokens behind the grant's path; room that was reserved for them is given back."""
        before = self._tree.size
        path = self._tree.insert(grant.path, tokens, now_us)
        new_len = len(tokens) - grant.path.length
        assert self._tree.size - before <= new_len <= grant.reserved
        self._reserved -= new_len
        assert self._tree.size + self._reserved <= self._capacity
        return Grant(path=path, extend_len=grant.extend_len, reserved=grant.reserved - new_len)

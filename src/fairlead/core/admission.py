"""What fits in memory, apart from who is next.

`Reserve` is the rule of the theorems (DESIGN 6.3): a request is admitted only with room for all it
may ever need, so nobody is preempted and U <= w_e * L_input + w_q * M holds.
"""

from dataclasses import dataclass

from fairlead.core.radix_tree import Path, RadixTree
from fairlead.core.request import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """An admitted request's share of memory, until `Reserve.release`."""

    path: Path
    extend_len: int
    reserved: int


class Reserve:
    """Admits a request if its uncached prompt and max_tokens fit in `capacity` (M, in tokens).

    Memory holds the cached tokens and what is reserved for outputs; unpinned cached tokens give way,
    except those the request itself matches.
    """

    def __init__(self, tree: RadixTree, *, capacity: int) -> None:
        self._tree = tree
        self._capacity = capacity
        self._reserved = 0

    def fits_ever(self, request: Request) -> bool:
        """Whether it could run alone; if not, it must be rejected on arrival."""
        return request.input_len + request.max_tokens <= self._capacity

    def admit(self, request: Request, now_us: int) -> Grant | None:
        """Memory for the request, its prompt cached and pinned; None if it does not fit now."""
        match = self._tree.match_len(request.prompt)
        need = request.input_len - match + request.max_tokens
        free = self._capacity - self._tree.size - self._reserved
        evictable = self._tree.evictable - self._tree.unpinned_len(request.prompt)
        if need > free + evictable:
            return None
        path = self._tree.acquire(request.prompt, now_us)
        if need > free:
            evicted = self._tree.evict(need - free)
            assert evicted == need - free, (evicted, need, free)
        path = self._tree.insert(path, request.prompt, now_us)
        self._reserved += request.max_tokens
        assert self._tree.size + self._reserved <= self._capacity
        # The last prompt token is always computed, or there would be nothing to sample from.
        extend_len = request.input_len - min(match, request.input_len - 1)
        return Grant(path=path, extend_len=extend_len, reserved=request.max_tokens)

    def release(self, grant: Grant) -> None:
        """The request is done: its outputs are dropped, its prompt stays cached until evicted."""
        self._tree.release(grant.path)
        self._reserved -= grant.reserved

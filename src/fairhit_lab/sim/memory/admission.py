"""What fits in memory, apart from who is next.

`Reserve` is the rule of the theorems (DESIGN 6.3): a request is admitted only with room for all it
may ever need, so nobody is preempted and U <= w_e * L_input + w_q * M holds.
"""

from collections.abc import Sequence

from fairhit.core.cache.radix_tree import Path, RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request, Unit


class Grant:
    """An admitted request's share of memory, until `Reserve.release`."""

    __slots__ = ("extend_len", "path", "reserved")

    def __init__(self, path: Path, extend_len: int, reserved: int) -> None:
        self.path = path  # pinned
        self.extend_len = extend_len  # prompt tokens to compute
        self.reserved = reserved  # tokens that are not in the tree yet


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
        self.shares = shares
        self._reserved = 0

    def fits_ever(self, request: Request) -> bool:
        """Whether it could run alone; if not, it must be rejected on arrival."""
        return request.input_len + request.max_tokens <= self._capacity

    def admit(self, request: Request, now_us: int) -> Grant | None:
        """Memory for the request, its prefix pinned; None if it does not fit now. O(prompt)."""
        tree = self._tree
        # DESIGN's "uncached + max_tokens <= free + evictable, its own match left out" with what is
        # free and unpinned on one side.
        room = self._room
        if request.max_tokens > room:
            return None
        prompt = Runs.of(request.prompt)
        match = tree.match(prompt)
        whole = request.input_len + request.max_tokens
        if whole > room and whole - tree.pinned_len(match) > room:
            return None
        matched = match[1]
        path = tree.pin(match, now_us)
        need = whole - matched
        lacking = need + self._reserved + tree.size - self._capacity
        if lacking > 0:
            evicted = tree.evict(lacking)
            assert evicted == lacking, (evicted, lacking)
            self.evicted += evicted
        self._reserved += need
        # The last prompt token is always computed, or there would be nothing to sample from.
        extend_len = request.input_len - min(matched, request.input_len - 1)
        grant = Grant(path, extend_len, need)
        if self.shares:
            self._cache(grant, prompt, request.input_len, now_us)
        return grant

    def prefilled(self, grant: Grant, request: Request, now_us: int) -> Grant:
        """The prompt was computed: it is cached from now on, if it was not before. O(prompt).

        Of a prompt that two have computed at once one copy stays.
        """
        if not self.shares:
            self._cache(grant, request.prompt, request.input_len, now_us)
        return grant

    def emitted(self, grant: Grant, tokens: Sequence[Unit], now_us: int) -> Grant:
        """It is done: `tokens`, its prompt and what it emitted, are cached. O(tokens)."""
        self._cache(grant, tokens, len(tokens), now_us)
        return grant

    def release(self, grant: Grant) -> None:
        """The request is gone: what it did not use is free, what is cached stays until evicted."""
        self._tree.use(grant.path)
        self._tree.release(grant.path)
        self._reserved -= grant.reserved

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        self._tree.check()
        assert 0 <= self._reserved <= self._capacity - self._tree.size, self._reserved

    @property
    def _room(self) -> int:
        """All that is not in use, whoever's."""
        return self._capacity - self._reserved - self._tree.pinned

    def _cache(self, grant: Grant, tokens: Sequence[Unit], end: int, now_us: int) -> None:
        """Put tokens[:end] behind the grant's path; the room that was reserved for them goes."""
        used = end - grant.path.end
        assert 0 <= used <= grant.reserved, (used, grant.reserved)
        grant.path = self._tree.insert(grant.path, tokens, now_us, end)
        grant.reserved -= used
        self._reserved -= used
        assert self._tree.size + self._reserved <= self._capacity

"""Admission to memory, apart from the order of requests.

`Reserve` is the rule of the theorems (DESIGN 6.3): a request is admitted only if all it may ever need is
available. So no request is preempted, and U <= w_e * L_input + w_q * M holds.
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

    Memory holds the cached tokens and the reservations for future ones; unpinned cached tokens are evicted,
    except those that the request matches. With `shares` a prompt is cached from its admission on; without,
    from `prefilled` on, and requests admitted in between compute it again.
    """

    def __init__(self, tree: RadixTree, *, capacity: int, shares: bool = True) -> None:
        self.evicted = 0  # tokens, since the beginning
        self._tree = tree
        self._capacity = capacity
        self.shares = shares
        self._reserved = 0

    def fits_ever(self, request: Request) -> bool:
        """Return whether the request could run alone; if not, it must be rejected on arrival."""
        return request.input_len + request.max_tokens <= self._capacity

    def admit(self, request: Request, now_us: int) -> Grant | None:
        """Reserve memory for the request and pin its prefix; None if it does not fit now. O(prompt)."""
        tree = self._tree
        # DESIGN's "uncached + max_tokens <= free + evictable, its own match left out", with the free and
        # unpinned tokens on one side.
        available = self.available
        if request.max_tokens > available:
            return None
        prompt = Runs.of(request.prompt)
        match = tree.match(prompt)
        whole = request.input_len + request.max_tokens
        if whole > available and whole - tree.pinned_len(match) > available:
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
        """Cache the prompt, which was computed, if it was not cached at admission. O(prompt).

        If two requests computed the same prompt at once, one copy stays.
        """
        if not self.shares:
            self._cache(grant, request.prompt, request.input_len, now_us)
        return grant

    def emitted(self, grant: Grant, tokens: Sequence[Unit], now_us: int) -> Grant:
        """Cache `tokens`, the prompt and the output of a finished request. O(tokens)."""
        self._cache(grant, tokens, len(tokens), now_us)
        return grant

    def release(self, grant: Grant) -> None:
        """Free what the request reserved and did not use; its cached tokens stay until evicted."""
        self._tree.use(grant.path)
        self._tree.release(grant.path)
        self._reserved -= grant.reserved

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        self._tree.check()
        assert 0 <= self._reserved <= self._capacity - self._tree.size, self._reserved

    @property
    def available(self) -> int:
        """Tokens of memory that are neither reserved nor pinned."""
        return self._capacity - self._reserved - self._tree.pinned

    def _cache(self, grant: Grant, tokens: Sequence[Unit], end: int, now_us: int) -> None:
        """Insert tokens[:end] behind the grant's path; their reservation ends."""
        used = end - grant.path.end
        assert 0 <= used <= grant.reserved, (used, grant.reserved)
        grant.path = self._tree.insert(grant.path, tokens, now_us, end)
        grant.reserved -= used
        self._reserved -= used
        assert self._tree.size + self._reserved <= self._capacity

"""Longest prefix match (LPM): the cache hits of SGLang's policy, without its cost.

SGLang matches the whole queue in every scheduling pass and gives up above 128 waiting requests; the
waiting index has every match at hand (DESIGN 4). `fallback` = 128 gives up all the same, for
comparisons. Neither is fair: clients that share a hot prefix go first.
"""

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Request
from fairhit.core.service import parse_tokens
from fairhit.core.waiting.cache_listener import AnyCache, prefix_index


class LPM:
    """The longest cached prefix first, then the oldest, of whatever client; nothing is charged.

    A pass that begins with more than `fallback` requests waiting takes the oldest first instead; None
    never does. (SGLang leaves its list as it was; here the fallback is the order of arrival.)
    """

    def __init__(self, *, cache: AnyCache, fallback: int | None = None) -> None:
        self._index = prefix_index(cache)
        self._fallback = fallback
        if fallback is not None:
            parse_tokens(fallback, least=0, where="fallback")
        self._arrivals: LazyHeap[tuple[int, Request]] = LazyHeap()  # with a fallback only
        self._skipped: list[Request] = []  # with a fallback only
        self._by_arrival = False

    def add(self, request: Request) -> None:
        """See `Policy.add`."""
        self._index.add(request)
        self._index.open(request.client)
        self._enter(request)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        self._index.remove(request)

    def begin_pass(self) -> None:
        """Begin a pass, and decide whether too many requests wait to take the best match."""
        self._index.show_all()
        for request in self._skipped:
            if request in self._index:
                self._enter(request)
        self._skipped.clear()
        self._by_arrival = self._fallback is not None and len(self._index) > self._fallback

    def next(self) -> Request | None:
        """Return the best match of all requests, or the oldest of all."""
        if not self._by_arrival:
            return self._index.best()
        top = self._arrivals.top(self._is_candidate)
        return top[1] if top else None

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        self._index.hide(request)
        if self._fallback is not None:
            self._skipped.append(request)

    def _enter(self, request: Request) -> None:
        if self._fallback is not None:
            self._arrivals.push((request.order, request), self._is_candidate)

    def _is_candidate(self, item: tuple[int, Request]) -> bool:
        return item[1] in self._index and not self._index.is_hidden(item[1])

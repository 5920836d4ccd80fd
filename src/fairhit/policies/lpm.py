"""Longest prefix match (LPM): the cache hits of SGLang's policy, without its cost.

SGLang matches the whole queue at every step and gives up above 128 waiting; here the waiting index
knows every match already (DESIGN 4). `fallback` = 128 gives up all the same, to compare with it.
There is no fairness in either: who shares a hot prefix goes first.
"""

from fairhit.core.cache.cache_view import Cache
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request
from fairhit.core.service import parse_tokens
from fairhit.core.waiting.cache_listener import waiting_index


class LPM:
    """The longest cached prefix first, then the oldest; whoever sent it.

    A look that begins with more than `fallback` requests waiting takes the oldest first instead;
    None never does. (SGLang leaves its list as it was; ours has an order of its own to fall back to.)
    """

    charges_outputs = False

    def __init__(self, *, cache: Cache, fallback: int | None = None) -> None:
        self._index = waiting_index(cache)
        self._passed: dict[Request, None] = {}
        self._fallback = fallback
        if fallback is not None:
            parse_tokens(fallback, least=0, where="fallback")
        self._arrivals: LazyHeap[tuple[int, Request]] = LazyHeap()  # only with a fallback
        self._by_arrival = False

    def add(self, request: Request) -> None:
        """See `Ordering.add`."""
        self._index.add(request)
        self._index.open(request.client)
        self._enter(request)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`."""
        self._passed.pop(request, None)
        self._index.remove(request)

    def begin(self) -> None:
        """See `Ordering.begin`; here it is decided whether this look has too many to sort."""
        passed, self._passed = self._passed, {}
        for request in passed:
            self._index.show(request)
            self._enter(request)
        self._by_arrival = self._fallback is not None and len(self._index) > self._fallback

    def next(self) -> Request | None:
        """The best match of all, or the oldest of all."""
        if not self._by_arrival:
            return self._index.best()
        top = self._arrivals.top(self._is_there)
        return top[1] if top else None

    def pass_over(self, request: Request) -> None:
        """See `Ordering.pass_over`."""
        self._passed[request] = None
        self._index.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Nothing is charged."""
        self.remove(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Nothing is charged."""

    def credit(self, client: ClientId) -> int:
        """All are owed alike, so the newest request of all is preempted first."""
        return 0

    def _enter(self, request: Request) -> None:
        if self._fallback is not None:
            self._arrivals.push((request.order, request), self._is_there)

    def _is_there(self, item: tuple[int, Request]) -> bool:
        return item[1] in self._index and item[1] not in self._passed

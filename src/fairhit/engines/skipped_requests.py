"""Requests that an engine skipped in a scheduling pass, in groups by client and LoRA adapter.

All requests for one adapter have the same chance of a LoRA slot. So a pass retries a few requests of each
group and leaves the rest out of the policy; once a request of a group is admitted, more of it are retried.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from fairhit.core.request import RequestId
from fairhit.engines.lora_slots import Taker

RequestT = TypeVar("RequestT")

# Requests retried in one pass, over all groups; also the groups examined in one pass.
RETRIES_PER_PASS = 32
# Requests of one group retried once a request of that group was admitted.
RETRIES_PER_ADMISSION = 8


class SkippedGroup(NamedTuple):
    """Preempted requests form a group of their own, so that new ones do not delay them."""

    taker: Taker
    is_preempted: bool


class SkippedRequests(Generic[RequestT]):
    """Skipped requests by group: oldest first within a group, and the groups in rotation."""

    def __init__(self) -> None:
        self._groups: dict[SkippedGroup, dict[RequestId, RequestT]] = {}
        self._group_of: dict[RequestId, SkippedGroup] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[RequestT]:
        for group in list(self._groups.values()):
            yield from list(group.values())

    def names(self) -> list[RequestId]:
        """Return the names of all skipped requests. O(skipped)."""
        return list(self._group_of)

    def add(self, name: RequestId, taker: Taker, request: RequestT, *, is_preempted: bool) -> None:
        """Append a request to its group. O(1)."""
        assert name not in self._group_of, name
        group = SkippedGroup(taker, is_preempted)
        self._groups.setdefault(group, {})[name] = request
        self._group_of[name] = group

    def remove(self, name: RequestId) -> None:
        """Remove a request if present. O(1)."""
        if (group := self._group_of.pop(name, None)) is not None:
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]

    def take(self, limit_of: Callable[[Taker], int]) -> list[RequestT]:
        """Remove and return the requests to retry in this pass: at most `limit_of` each group.

        The groups examined come last in the next pass. O(RETRIES_PER_PASS).
        """
        taken: list[RequestT] = []
        for group in list(islice(self._groups, RETRIES_PER_PASS)):
            taken += self._take(group, min(limit_of(group.taker), RETRIES_PER_PASS - len(taken)))
            if len(taken) == RETRIES_PER_PASS:
                break
        return taken

    def take_like(self, taker: Taker) -> list[RequestT]:
        """Remove and return more requests of a taker whose adapter has a slot, preempted ones first."""
        taken = self._take(SkippedGroup(taker, True), RETRIES_PER_ADMISSION)
        return taken + self._take(SkippedGroup(taker, False), RETRIES_PER_ADMISSION - len(taken))

    def _take(self, group: SkippedGroup, limit: int) -> list[RequestT]:
        if group not in self._groups:
            return []
        names = list(islice(self._groups[group], limit))
        taken = [self._groups[group][name] for name in names]
        for name in names:
            self.remove(name)
        if group in self._groups:
            self._groups[group] = self._groups.pop(group)
        return taken

"""Requests that SGLang passed over because their LoRA adapter has no slot: kept out of the look, in groups.

Whether an adapter has a slot is the same for all that want it. So one of each client and adapter is tried
in a look; that it was admitted is the sign for more of them.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from fairlead.core.request import Request, RequestId
from fairlead.engines.adapter_turns import Taker

# Groups looked at in a look, of each of which one is tried.
TRIED_PER_LOOK = 32
# Of its group, once one of them was admitted.
MORE_PER_ADMISSION = 8


class Group(NamedTuple):
    """Those that ran before do not wait behind the others."""

    taker: Taker
    is_paid: bool


class Slotless:
    """Within a group the oldest comes first, and the groups take turns."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[RequestId, Request]] = {}
        self._group_of: dict[RequestId, Group] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[RequestId]:
        return iter(self._group_of)

    def add(self, taker: Taker, request: Request, *, is_paid: bool) -> None:
        """At the end of its group. O(1)."""
        group = Group(taker, is_paid)
        self._groups.setdefault(group, {})[request.id] = request
        self._group_of[request.id] = group

    def remove(self, name: RequestId) -> None:
        """It is gone, if it was here. O(1)."""
        if (group := self._group_of.pop(name, None)) is not None:
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]

    def take(self, is_barred: Callable[[Taker], bool]) -> list[Request]:
        """One of each group to try in this look; none of those barred, they would be set aside again.

        Of too many groups, others the next time. O(TRIED_PER_LOOK).
        """
        groups = list(islice(self._groups, TRIED_PER_LOOK))
        return [
            request
            for group in groups
            for request in self._take(group, 0 if is_barred(group.taker) else 1)
        ]

    def take_like(self, taker: Taker) -> list[Request]:
        """More of a taker that has a slot. O(taken)."""
        taken = self._take(Group(taker, True), MORE_PER_ADMISSION)
        return taken + self._take(Group(taker, False), MORE_PER_ADMISSION - len(taken))

    def _take(self, group: Group, most: int) -> list[Request]:
        if group not in self._groups:
            return []
        taken = list(islice(self._groups[group].values(), most))
        for request in taken:
            self.remove(request.id)
        if group in self._groups:  # it comes last in the next look
            self._groups[group] = self._groups.pop(group)
        return taken

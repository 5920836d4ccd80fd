"""Requests that vLLM skipped though they are ready, by client and LoRA adapter.

Whether an adapter has a slot is the same for all that want it. So a few of each group are tried
again; that one of them runs is the sign for more.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from vllm.v1.request import RequestStatus

from fairlead.core.request import ClientId, RequestId
from fairlead.engines.adapter_turns import Taker

# Who, and whether they were preempted: those do not wait behind all the others.
Group: TypeAlias = tuple[Taker, bool]

# Requests tried again in one step, over all groups.
RETRIES_PER_STEP = 32
# Of one group that wants a LoRA slot; others may each wait for something of their own.
RETRIES_PER_ADAPTER = 2
# Of its group, once one of them was admitted.
RETRIES_PER_ADMISSION = 8


def adapter_of(request: Any) -> str | None:
    """The LoRA adapter that the engine's request wants."""
    return request.lora_request.lora_name if request.lora_request is not None else None


class Aside:
    """The skipped requests. Within a group they are tried in turn, and so are the groups."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[RequestId, Any]] = {}
        self._group_of: dict[RequestId, Group] = {}

    def add(self, client: ClientId, request: Any) -> None:
        """At the end of its group. O(1)."""
        taker = Taker(client, adapter_of(request))
        group = taker, request.status == RequestStatus.PREEMPTED
        self._groups.setdefault(group, {})[request.request_id] = request
        self._group_of[request.request_id] = group

    def remove(self, name: RequestId) -> None:
        """It is gone, if it was here. O(1)."""
        if (group := self._group_of.pop(name, None)) is not None:
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]

    def take(
        self, is_barred: Callable[[str | None], bool], *, lacks_slot: Callable[[str | None], bool]
    ) -> list[Any]:
        """Those to try again in this step, of no adapter barred now; their groups come last in the next.

        Fewer of an adapter that lacks a slot, as one speaks for all. O(RETRIES_PER_STEP).
        """
        taken: list[Any] = []
        for group in list(islice(self._groups, RETRIES_PER_STEP)):
            adapter, limit = group[0].adapter, RETRIES_PER_STEP
            if is_barred(adapter):  # they would only be put aside again
                limit = 0
            elif adapter is not None and lacks_slot(adapter):
                limit = RETRIES_PER_ADAPTER
            taken += self._take(group, min(limit, RETRIES_PER_STEP - len(taken)))
            if len(taken) == RETRIES_PER_STEP:
                break
        return taken

    def take_like(self, taker: Taker) -> list[Any]:
        """More of the taker's, when one of them was or may be admitted. O(taken)."""
        taken = self._take((taker, True), RETRIES_PER_ADMISSION)
        return taken + self._take((taker, False), RETRIES_PER_ADMISSION - len(taken))

    def _take(self, group: Group, limit: int) -> list[Any]:
        if group not in self._groups:
            return []
        taken = list(islice(self._groups[group].values(), limit))
        for request in taken:
            self.remove(request.request_id)
        if group in self._groups:
            self._groups[group] = self._groups.pop(group)
        return taken

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[Any]:
        for group in list(self._groups.values()):
            yield from list(group.values())

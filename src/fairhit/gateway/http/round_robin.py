"""Round-robin over queues by owner: an owner with a thousand items delays no other owner's."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class OwnerQueues(Generic[Item]):
    """Items of each owner in order of arrival; owners round-robin. Every operation is O(1)."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        # The owner to be served next is first; none has an empty queue.
        self._queues: OrderedDict[object, OrderedDict[Item, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Item]:
        return (item for queue in self._queues.values() for item in queue)

    def add(self, owner: object, item: Item) -> None:
        """Append `item`, which must not be in the queue of `owner`, to that queue."""
        queue = self._queues.setdefault(owner, OrderedDict())
        assert item not in queue, "each item is added once"
        queue[item] = None

    def pop(self) -> Item:
        """Remove and return the oldest item of the first owner; that owner becomes the last."""
        owner, queue = self._queues.popitem(last=False)
        item, _ = queue.popitem(last=False)
        if queue:
            self._queues[owner] = queue
        return item

    def remove(self, owner: object, item: Item) -> None:
        """Remove `item` from the queue of `owner`, if it is there."""
        queue = self._queues.get(owner)
        if queue is not None:
            queue.pop(item, None)
            if not queue:
                del self._queues[owner]

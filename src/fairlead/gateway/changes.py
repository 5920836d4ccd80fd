"""What operators changed at one of several processes, as these tell each other of it through their parent."""

from typing import NamedTuple, Self

import orjson


class Change(NamedTuple):
    """One request to change something. Of several about the same thing the last one counts."""

    maker: int  # the process that was asked, by its id
    about: str  # the engine's URL; empty: the scheduler
    method: str  # empty: it is as the settings say again
    target: str
    body: str

    def encode(self) -> bytes:
        """As one message."""
        return orjson.dumps(list(self))

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """What `encode` made."""
        return cls(*orjson.loads(message))

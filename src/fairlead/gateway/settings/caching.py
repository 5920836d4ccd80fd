"""Settings of what is known of the engines' caches: tokens instead of bytes, and the engines' events."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator

from fairlead.core.blocked_tokens import BLOCK_LEN
from fairlead.gateway.settings.declaring import Group, setting
from fairlead.gateway.settings.values import parse_worker_url

_ADDRESS = re.compile(r"(tcp://[^\s/]+:(?P<port>\d{1,5})|ipc://\S+)")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 65536


def parse_endpoints(value: object) -> Mapping[str, Sequence[str]]:
    """`URL=tcp://HOST:PORT`, for each data-parallel rank one, with commas between; or a mapping."""
    if isinstance(value, Mapping):
        pairs = [(str(url), given) for url, given in value.items()]
    else:
        texts = value.split() if isinstance(value, str) else value
        if not isinstance(texts, Sequence):
            raise ValueError("expected URL=tcp://HOST:PORT")
        # An engine's URL has no `=`: a query is refused.
        pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in map(str, texts)]
    endpoints = {}
    for url, given in pairs:
        addresses = tuple(given.split(",")) if isinstance(given, str) else tuple(map(str, given))
        if not addresses or not all(map(_is_address, addresses)):
            raise ValueError("expected URL=tcp://HOST:PORT")
        endpoints[parse_worker_url(url)] = addresses
    return endpoints


EventEndpoints = Annotated[Mapping[str, Sequence[str]], BeforeValidator(parse_endpoints)]


class Caching(Group):
    """What is known of the engines' caches."""

    block_size: int = setting(
        BLOCK_LEN, "tokens of a block in the index of tokens; best the engines' own", "TOKENS", ge=1
    )
    kv_events_port: int | None = setting(
        None, "port at which each engine's host publishes KV events, as 5557; needs --tokenizer",
        "PORT", ge=1, le=65535,
    )  # fmt: skip
    kv_events_replay_port: int | None = setting(
        None, "port of the same hosts for replays, as 5558", "PORT", ge=1, le=65535
    )
    kv_events_endpoint: EventEndpoints = setting(
        {}, "where one engine publishes; ranks with commas between; may be repeated",
        "URL=tcp://HOST:PORT,...", shape="again",
    )  # fmt: skip
    kv_events_replay_endpoint: EventEndpoints = setting(
        {}, "where that engine replays; in the same order", "URL=tcp://HOST:PORT,...", shape="again"
    )
    kv_events_topic: str = setting("", "topics that begin so are heard; all, if empty", "TOPIC")
    kv_events_max_blocks: int = setting(
        1 << 18, "blocks of one engine that are remembered", "BLOCKS", ge=1
    )

    def has_kv_events(self) -> bool:
        """Whether any engine's events are to be heard."""
        return bool(self.kv_events_endpoint) or self.kv_events_port is not None

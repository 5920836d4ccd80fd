"""What the gateway knows of the engines' caches: the index, what it is made of, and who tells it.

By default an index of bytes, and nobody tells it anything. With a tokenizer an index of token blocks, which
the engines' KV events make true where they publish them.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fairhit.core.request import WorkerId
from fairhit.errors import ConfigError
from fairhit.gateway.prefix.kv_events.cache_monitor import CacheCounts, CacheWatch, Endpoints
from fairhit.gateway.prefix.tokenizer import Tokenizer
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex


class Caches:
    """The index of prefixes, and with `--tokenizer` the tokenizer and the engines' events.

    `is_adapter` says whether a model's name is an adapter's. Raises ConfigError.
    """

    def __init__(self, settings: GatewaySettings, *, is_adapter: Callable[[str], bool]) -> None:
        self.index: ApproximatePrefixIndex | PrecisePrefixIndex
        self.tokenizer: Tokenizer | None = None
        self._settings = settings
        self._watch: CacheWatch | None = None
        if settings.tokenizer is None:
            if settings.has_kv_events():
                raise ConfigError(
                    "--kv-events: an index of tokens is needed: give --tokenizer, too"
                )
            self.index = ApproximatePrefixIndex(capacity=settings.max_tree_size)
            return
        self.index = PrecisePrefixIndex(
            capacity=settings.max_tree_size, block_len=settings.block_size
        )
        self.tokenizer = Tokenizer(
            settings.tokenizer, block_len=settings.block_size, is_adapter=is_adapter
        )

    @property
    def tokens(self) -> PrecisePrefixIndex | None:
        """The index, if it is one of tokens."""
        return self.index if isinstance(self.index, PrecisePrefixIndex) else None

    def start(self) -> None:
        """Hear the events of each engine that is up from now on; on the running loop."""
        settings, index = self._settings, self.tokens
        if index is not None and settings.has_kv_events():
            self._watch = CacheWatch(
                index=index,
                endpoints=self._endpoints,
                topic=settings.kv_events_topic,
                block_len=settings.block_size,
                capacity=settings.kv_events_max_blocks,
            )

    def counts(self) -> Mapping[WorkerId, CacheCounts]:
        """What the events of each worker that is up have come to."""
        return self._watch.counts() if self._watch is not None else {}

    def close(self) -> None:
        """Hear no more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _endpoints(self, worker: WorkerId) -> Endpoints | None:
        """Those named for this engine, or the usual ports of its host."""
        settings = self._settings
        events = settings.kv_events_endpoint.get(worker, ())
        replays = settings.kv_events_replay_endpoint.get(worker, ())
        if events:
            padded = [*replays, *[None] * (len(events) - len(replays))]
            return Endpoints(tuple(zip(events, padded, strict=True)))
        if settings.kv_events_port is None:
            return None
        host = urlsplit(worker).hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        replay = settings.kv_events_replay_port
        at = (
            f"tcp://{host}:{settings.kv_events_port}",
            f"tcp://{host}:{replay}" if replay else None,
        )
        return Endpoints((at,))

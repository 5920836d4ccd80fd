"""The gateway's view of the engines' prefix caches: index, tokenizer, KV events.

By default the index is approximate: hashes of bytes that were sent. With a tokenizer it is an index of
token blocks, which the engines' KV events make precise where they are published.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fairhit.core.request import WorkerId
from fairhit.errors import ConfigError
from fairhit.gateway.prefix.kv_events.cache_monitor import CacheCounts, CacheMonitor, Endpoints
from fairhit.gateway.prefix.tokenizer import Tokenizer
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex


class EngineCaches:
    """The prefix index; with `--tokenizer` also the tokenizer and the monitor of KV events.

    `is_adapter` is true for the name of a LoRA adapter. Raises ConfigError.
    """

    def __init__(self, settings: GatewaySettings, *, is_adapter: Callable[[str], bool]) -> None:
        self.index: ApproximatePrefixIndex | PrecisePrefixIndex
        self.tokenizer: Tokenizer | None = None
        self._settings = settings
        self._monitor: CacheMonitor | None = None
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
        """The index if it is one of tokens, else None."""
        return self.index if isinstance(self.index, PrecisePrefixIndex) else None

    def start(self) -> None:
        """Subscribe to the KV events of each engine that is up, on the running loop."""
        settings, index = self._settings, self.tokens
        if index is not None and settings.has_kv_events():
            self._monitor = CacheMonitor(
                index=index,
                endpoints=self._endpoints,
                topic=settings.kv_events_topic,
                block_len=settings.block_size,
                capacity=settings.kv_events_max_blocks,
            )

    def counts(self) -> Mapping[WorkerId, CacheCounts]:
        """Counts of KV events, by engine that is up."""
        return self._monitor.counts() if self._monitor is not None else {}

    def close(self) -> None:
        """Close all subscriptions."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _endpoints(self, worker: WorkerId) -> Endpoints | None:
        """Endpoints configured for the engine `worker`, else the configured ports on its host."""
        settings = self._settings
        events = settings.kv_events_endpoint.get(worker, ())
        replays = settings.kv_events_replay_endpoint.get(worker, ())
        if events:
            padded = [*replays, *[None] * (len(events) - len(replays))]
            return tuple(zip(events, padded, strict=True))
        if settings.kv_events_port is None:
            return None
        host = urlsplit(worker).hostname or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        replay = settings.kv_events_replay_port
        at = (
            f"tcp://{host}:{settings.kv_events_port}",
            f"tcp://{host}:{replay}" if replay else None,
        )
        return (at,)

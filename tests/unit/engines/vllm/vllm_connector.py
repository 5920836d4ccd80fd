"""A KV connector for a bare vLLM scheduler: nothing cached elsewhere, and nothing done by workers."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)


class QuietConnector(KVConnectorBase_V1):
    """Tests say what is loaded, by overriding what they need."""

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...
    def wait_for_layer_load(self, *_: Any, **__: Any) -> None: ...
    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...
    def wait_for_save(self) -> None: ...

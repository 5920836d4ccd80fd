"""fairhit inside vLLM: the names for `--scheduler-cls` and `--middleware`.

Each is imported on demand: the HTTP server needs no scheduler and the engine process no middleware.
"""

import os
from typing import TYPE_CHECKING, Any

from fairhit.errors import ConfigError

if TYPE_CHECKING:
    from fairhit.engines.vllm.middleware import ClientIdentity
    from fairhit.engines.vllm.scheduler import FairScheduler

__all__ = ["ClientIdentity", "FairScheduler"]


def __getattr__(name: str) -> Any:
    if name == "FairScheduler":
        from fairhit.engines.vllm.scheduler import FairScheduler

        return FairScheduler
    if name == "ClientIdentity":
        from fairhit.engines.vllm.middleware import ClientIdentity, read_keys

        # vLLM constructs its middleware when it already serves: an error there is one line of the log
        # and then status 500 for every request. So wrong keys stop the server here, at the import.
        try:
            read_keys(os.environ)
        except ConfigError as error:
            raise SystemExit(f"fairhit: {error}") from None
        return ClientIdentity
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

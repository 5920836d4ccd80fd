"""The gateway's settings: the one place that reads its flags, its files and the environment.

A setting comes from a flag, else from the environment (`FAIRLEAD_GATEWAY_` and its name), else from a
settings file (YAML, the same names), else from its default. Whatever is wrong is one line that names
the source, the setting and what was expected. A new setting is one line in the group it belongs to.
"""

from fairlead.gateway.settings.queueing import Waiting
from fairlead.gateway.settings.reading import read_config
from fairlead.gateway.settings.sources import (
    PREFIX,
    WORKER_KEY_VARIABLE,
    Sources,
    add_arguments,
    environment_without_settings,
    files_of,
    from_arguments,
    make,
)
from fairlead.gateway.settings.values import parse_worker_url
from fairlead.gateway.settings.whole import LIVE, GatewaySettings

__all__ = [
    "LIVE", "PREFIX", "WORKER_KEY_VARIABLE", "GatewaySettings", "Sources", "Waiting",
    "add_arguments", "environment_without_settings", "files_of", "from_arguments", "make", "parse_worker_url",
    "read_config",
]  # fmt: skip

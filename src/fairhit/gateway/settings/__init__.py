"""The gateway's settings: the one place that reads its flags, its files and the environment.

A setting is given by a flag, else by the environment (`FAIRHIT_GATEWAY_` and its name), else by a settings
file (YAML, the same names), else by its default. An error is one line that names the source, the setting and
what was expected. A new setting is one field in the section of `GatewaySettings` that it belongs to.
"""

from fairhit.gateway.settings.files import read_config
from fairhit.gateway.settings.gateway_settings import LIVE, SECTIONS, GatewaySettings, QueueSettings
from fairhit.gateway.settings.sources import (
    PREFIX,
    WORKER_KEY_VARIABLE,
    Sources,
    add_arguments,
    environment_without_settings,
    files_of,
    from_arguments,
    make,
)
from fairhit.gateway.settings.types import parse_worker_url

__all__ = [
    "LIVE", "PREFIX", "SECTIONS", "WORKER_KEY_VARIABLE", "GatewaySettings", "QueueSettings", "Sources",
    "add_arguments", "environment_without_settings", "files_of", "from_arguments", "make", "parse_worker_url",
    "read_config",
]  # fmt: skip

"""`fairhit top`: a live view of a running gateway."""

import argparse
import os
from dataclasses import dataclass

from fairhit.settings.declaration import setting, settings_of
from fairhit.settings.flags import add_flags, read_flags

# The gateway's own variable: the same environment serves both commands.
_KEY = "FAIRHIT_GATEWAY_ADMIN_API_KEY"


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """The settings of `fairhit top`."""

    url: str = setting("http://127.0.0.1:8000", "address of the gateway", "URL")
    key: str | None = setting(
        None, f"the gateway's --admin-api-key; better in {_KEY}, which other users cannot read", "KEY",
        secret=True,
    )  # fmt: skip


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fairhit top`."""
    add_flags(parser, settings_of(TopOptions))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the view until Ctrl-C."""
    from fairhit.errors import ConfigError
    from fairhit.gateway.observability.page import top
    from fairhit.gateway.settings import parse_worker_url

    own = TopOptions(**read_flags(settings_of(TopOptions), options))
    try:
        parse_worker_url(own.url)
    except ValueError:
        raise ConfigError(f"--url {own.url}: expected http://HOST:PORT") from None
    return top.run(own.url, own.key or os.environ.get(_KEY))

"""`fairhit top`: what a running gateway does, live."""

import argparse
import os
from typing import Any

# The gateway's own variable: where both are started from one environment, nothing is typed twice.
_KEY = "FAIRHIT_GATEWAY_ADMIN_API_KEY"


def add(commands: Any) -> None:
    """The command and its flags."""
    parser = commands.add_parser("top", help="what a running gateway does, live")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", metavar="URL", help="the gateway (%(default)s)"
    )
    parser.add_argument(
        "--key", metavar="KEY", help=f"its --admin-api-key; better in {_KEY}, which nobody sees"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show it until Ctrl-C."""
    from fairhit.errors import ConfigError
    from fairhit.gateway.observability.page import top
    from fairhit.gateway.settings import parse_worker_url

    try:
        parse_worker_url(options.url)
    except ValueError:
        raise ConfigError(f"--url {options.url}: expected http://HOST:PORT") from None
    return top.run(options.url, options.key or os.environ.get(_KEY))

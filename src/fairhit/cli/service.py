"""`fairhit serve`, `gateway` and `demo`: real engines, and the gateway in front of them."""

import argparse
import sys
from dataclasses import dataclass

from fairhit.errors import ConfigError
from fairhit.settings.declaration import setting, settings_of
from fairhit.settings.flags import add_flags, read_flags

# Before the names of the engines' settings, of which the gateway has some, too.
OF_ENGINES = "engine_"
# Settings of the gateway about engines that others started: `serve` starts its own.
OTHERS_ENGINES = {"worker_urls", "static_backends", "static_models", "worker_api_key", "api_key"}


def fill_gateway(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fairhit gateway`, all of them the gateway's settings."""
    from fairhit.gateway import settings

    settings.add_arguments(parser)
    parser.set_defaults(run=run_gateway)
    actions = parser.add_subparsers(title="instead of serving", metavar="")
    hashing = actions.add_parser(
        "hash-key", help="read a key from standard input and print its line for --keys-file"
    )
    hashing.add_argument("tenant", metavar="TENANT", help="the client that the key is for")
    hashing.set_defaults(run=run_hash_key)


def run_gateway(options: argparse.Namespace) -> int:
    """Run the gateway until a signal stops it."""
    from fairhit.gateway import settings
    from fairhit.gateway.process import main as process

    sources = settings.Sources(options)
    return process.run(sources.read(), sources)


def run_hash_key(options: argparse.Namespace) -> int:
    """Print `TENANT:sha256:HEX` for a key on stdin, which keeps the key out of the list of processes."""
    from fairhit.gateway.auth.keys import hashed_line

    if ":" in options.tenant:
        raise ConfigError(f"hash-key: expected a TENANT without a colon, got {options.tenant!r}")
    key = sys.stdin.readline().strip()
    print(hashed_line(f"{options.tenant}:{key}", where="hash-key"))
    return 0


def fill_serve(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fairhit serve`: the engines' settings and the gateway's."""
    from fairhit.gateway import settings
    from fairhit.local import serve

    # Requests wait in the engines here, and the queue's flags of the same names are the engines'.
    settings.add_arguments(parser, but=(settings.QueueSettings,))
    for action in parser._actions:
        if action.dest in OTHERS_ENGINES:
            action.help = argparse.SUPPRESS
    engines = parser.add_argument_group("engines")
    add_flags(engines, settings_of(serve.ServeOptions), prefix=OF_ENGINES)
    engines.add_argument(
        "--router",
        dest="policy",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="same as --policy",
    )
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Start engines and gateway, print how to use them, and keep them running until a signal stops them."""
    from fairhit.cli import console
    from fairhit.gateway import settings
    from fairhit.local import serve

    gateway = settings.from_arguments(options)
    if gateway.worker_urls:
        raise ConfigError(
            "serve starts its own engines; worker-urls are for `fairhit gateway`, in front of others"
        )
    gateway.keys()  # a bad keys file is found now, not by the gateway in half a minute
    own = read_flags(settings_of(serve.ServeOptions), options, prefix=OF_ENGINES)
    return console.serve(serve.ServeOptions(gateway=gateway, **own))


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The settings of `fairhit demo`."""

    seconds: int = setting(20, "measured time for each policy", "S", ge=1)
    seed: int = setting(0, "seed of the prompts", "N")
    out: str | None = setting(None, "file for the numbers, as JSON", "FILE")


def fill_demo(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fairhit demo`."""
    add_flags(parser, settings_of(DemoOptions))
    parser.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> int:
    """Run the flood under each policy and print the table."""
    from fairhit.cli import console

    wanted = DemoOptions(**read_flags(settings_of(DemoOptions), options))
    return console.demo(seconds=wanted.seconds, seed=wanted.seed, out=wanted.out)

"""`fairlead serve`, `gateway` and `demo`: real engines, and what goes in front of them."""

import argparse
import sys
from typing import Any

from fairlead.cli.values import count
from fairlead.errors import ConfigError

# Its value begins with dashes too, and would pass for a flag if it stood by itself.
FLAGS_FLAG = "--engine-args"

# Settings of the gateway about engines that others started: `serve` has its own.
OTHERS_ENGINES = {"worker_urls", "static_backends", "static_models", "worker_api_key", "api_key"}


def add(commands: Any, command: str | None) -> None:
    """The three commands, the flags of `command` only."""
    for name, fill, what in (
        ("serve", add_serve, "local engines with the gateway in front"),
        ("gateway", add_gateway, "the gateway in front of running engines"),
        ("demo", add_demo, "two tenants, one of them flooding: who gets what"),
    ):
        parser = commands.add_parser(name, help=what)
        if name == command:
            fill(parser)


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """`fairlead gateway`: everything about it is the gateway's own."""
    from fairlead.gateway import settings

    settings.add_arguments(parser)
    parser.set_defaults(run=run_gateway)
    actions = parser.add_subparsers(title="instead of serving", metavar="")
    hashing = actions.add_parser(
        "hash-key", help="read a key from stdin, print its line for --keys-file"
    )
    hashing.add_argument("tenant", metavar="TENANT", help="the client that the key is for")
    hashing.set_defaults(run=run_hash_key)


def run_gateway(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from fairlead.gateway import process, settings

    sources = settings.Sources(options)
    return process.run(sources.read(), sources)


def run_hash_key(options: argparse.Namespace) -> int:
    """Print `TENANT:sha256:HEX`; the key does not appear in the list of processes."""
    from fairlead.gateway.keys import hashed_line

    if ":" in options.tenant:
        raise ConfigError(f"hash-key: expected a TENANT without a colon, got {options.tenant!r}")
    key = sys.stdin.readline().strip()
    print(hashed_line(f"{options.tenant}:{key}", where="hash-key"))
    return 0


def add_serve(parser: argparse.ArgumentParser) -> None:
    """`fairlead serve`: the engines' flags, and the gateway's."""
    from fairlead.gateway import settings
    from fairlead.schedulers import IN_ENGINES

    # The engines queue, and these flags are theirs here.
    settings.add_arguments(parser, but=(settings.Waiting,))
    for action in parser._actions:
        if action.dest in OTHERS_ENGINES:
            action.help = argparse.SUPPRESS
    engines = parser.add_argument_group("engines")
    engines.add_argument("--engines", type=count, default=2, metavar="N", help="how many (2)")
    engines.add_argument("--engine", choices=["vllm"], default="vllm", help="which (vllm)")
    engines.add_argument(
        "--model", default="demo", metavar="DIR|ID", help="demo: small, random weights, made here"
    )
    engines.add_argument(
        "--scheduler",
        dest="engine_scheduler",
        choices=IN_ENGINES,
        default="dlpm",
        help="inside each engine (dlpm)",
    )
    engines.add_argument(
        "--quantum",
        dest="engine_quantum",
        type=count,
        metavar="TOKENS",
        help="Q^u of DLPM (4096)",
    )
    engines.add_argument(
        FLAGS_FLAG, default="", metavar='"ARGS"', help="more flags for the engine, as one argument"
    )
    engines.add_argument(
        "--router",
        dest="policy",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="same as --policy",
    )
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Start everything, say how to use it, and keep it running until told to stop."""
    from fairlead import console, serve
    from fairlead.gateway import settings

    gateway = settings.from_arguments(options)
    if gateway.worker_urls:
        raise ConfigError(
            "serve starts its own engines; worker-urls are for `fairlead gateway`, in front of others"
        )
    gateway.keys()  # a bad keys file is found now, not by the gateway in half a minute
    wanted = serve.ServeOptions(
        gateway=gateway,
        engines=options.engines,
        model=options.model,
        scheduler=options.engine_scheduler,
        quantum=options.engine_quantum,
        engine_arguments=serve.split_arguments(options.engine_args),
    )
    return console.serve(wanted)


def add_demo(parser: argparse.ArgumentParser) -> None:
    """`fairlead demo`: the two-tenant flood."""
    parser.add_argument("--seconds", type=count, default=20, metavar="S", help="per policy (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts (0)")
    parser.add_argument("--out", metavar="FILE", help="also write the numbers there, as JSON")
    parser.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> int:
    """Run the flood under each policy and print the table."""
    from fairlead import console

    return console.demo(seconds=options.seconds, seed=options.seed, out=options.out)

"""The command line: parses arguments, calls one function, and turns our errors into one line.

Exit status: 0 done, 1 an engine failed, 2 the command was wrong, 130 interrupted.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, get_args

from fairlead.errors import ConfigError, FairleadError, in_words

# Which extra brings a package, for whoever installed only part of fairlead.
EXTRAS = {"uvloop": "gateway", "httptools": "gateway", "pydantic": "gateway", "rich": "gateway"}


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line: the usage text is behind --help."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = list(_dashed(sys.argv[1:] if argv is None else argv))
    try:
        options = make_parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except ConfigError as error:
        print(f"fairlead: error: {error}", file=sys.stderr)
        return 2
    except FairleadError as error:
        print(f"fairlead: error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        wanted = EXTRAS[name]
        print(f"fairlead: error: needs {name}: pip install 'fairlead[{wanted}]'", file=sys.stderr)
        return 2
    except OSError as error:
        # Where it matters what was being done, that is said; this is for output into a full disk.
        print(f"fairlead: error: {in_words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


FLAG = re.compile(r"--[A-Za-z0-9_-]+")
# Its value begins with dashes too, and would pass for a flag if it stood by itself.
FLAGS_FLAG = "--engine-args"


def _dashed(arguments: Iterable[str]) -> Iterator[str]:
    """Underscores in a flag's name are accepted for dashes; values are left alone."""
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if not FLAG.fullmatch(name):
            yield argument
            continue
        name = name.replace("_", "-")
        if name == FLAGS_FLAG and not equals and (following := next(remaining, None)) is not None:
            equals, value = "=", following
        yield name + equals + value


def make_parser() -> OneLineParser:
    """Every command with its flags."""
    parser = OneLineParser(
        prog="fairlead",
        description="Fair shares of LLM serving capacity that keep the prefix cache.",
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=OneLineParser
    )
    add_serve(commands.add_parser("serve", help="local engines with the gateway in front"))
    add_gateway(commands.add_parser("gateway", help="the gateway in front of running engines"))
    add_demo(commands.add_parser("demo", help="two tenants, one of them flooding: who gets what"))
    return parser


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """`fairlead gateway`: everything about it is the gateway's own."""
    from fairlead.gateway import settings

    settings.add_arguments(parser)
    parser.set_defaults(run=run_gateway)


def run_gateway(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from fairlead.gateway import server, settings

    return server.run(settings.from_arguments(options))


def add_serve(parser: argparse.ArgumentParser) -> None:
    """`fairlead serve`: the engines' flags, and the gateway's."""
    from fairlead.gateway import settings
    from fairlead.schedulers import SCHEDULERS

    settings.add_arguments(parser)
    engines = parser.add_argument_group("engines")
    engines.add_argument("--engines", type=count, default=2, metavar="N", help="how many (2)")
    engines.add_argument("--engine", choices=["vllm"], default="vllm", help="which (vllm)")
    engines.add_argument(
        "--model", default="demo", metavar="DIR|ID", help="demo: small, random weights, made here"
    )
    engines.add_argument(
        "--scheduler", choices=sorted(SCHEDULERS), default="dlpm", help="inside each engine (dlpm)"
    )
    engines.add_argument("--quantum", type=count, metavar="TOKENS", help="Q^u of DLPM (4096)")
    engines.add_argument(
        FLAGS_FLAG, default="", metavar='"ARGS"', help="more flags for the engine, as one argument"
    )
    engines.add_argument(
        "--router",
        dest="policy",
        choices=get_args(settings.PolicyName),
        default=argparse.SUPPRESS,
        help="same as --policy",
    )
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Start everything, say how to use it, and keep it running until told to stop."""
    from fairlead import console, serve
    from fairlead.gateway import settings

    if getattr(options, "worker_urls", None):
        raise ConfigError(
            "serve starts its own engines; `fairlead gateway` goes in front of others"
        )
    gateway = settings.from_arguments(options)
    gateway.keys()  # a bad keys file is found now, not by the gateway in half a minute
    wanted = serve.ServeOptions(
        gateway=gateway,
        engines=options.engines,
        model=options.model,
        scheduler=options.scheduler,
        quantum=options.quantum,
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


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())

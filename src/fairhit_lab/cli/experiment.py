"""`fairhit experiment`: the papers' experiments and ours by name (runner/registry.py)."""

import argparse
from typing import TYPE_CHECKING, Any

# Options of a console for plain text: no wrapping, and brackets are no markup.
_PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}

if TYPE_CHECKING:
    from fairhit_lab.runner.registry import Module


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fairhit experiment`; each experiment's own flags are read when it is chosen."""
    parser.description = "`fairhit experiment list` shows the names, `... NAME --help` its flags."
    parser.add_argument("name", metavar="NAME|all|list")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the experiment and return its exit status. Raises ConfigError."""
    from rich.console import Console

    from fairhit.errors import ConfigError
    from fairhit_lab.runner import all_command
    from fairhit_lab.runner.registry import EXPERIMENTS, module_of

    console = Console()
    name, arguments = options.name, options.arguments
    if name == "list":
        return _parsed("list", "Lists all experiments.", _List(), arguments, console)
    if name == "all":
        return _parsed(
            "all",
            "Runs all experiments that need no arguments.",
            all_command,
            arguments,
            console,
        )
    if name not in EXPERIMENTS:
        known = ", ".join([*EXPERIMENTS, "all", "list"])
        raise ConfigError(f"experiment: expected one of {known}, got {name!r}")
    return _parsed(name, EXPERIMENTS[name].summary, module_of(name), arguments, console)


def _parsed(name: str, summary: str, module: "Module", arguments: list[str], console: Any) -> int:
    from fairhit.cli.parser import OneLineParser

    parser = OneLineParser(prog=f"fairhit experiment {name}", description=summary)
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments), console)


class _List:
    """The command `list`: each experiment with its time, source and summary."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add no flags."""

    def run(self, options: argparse.Namespace, console: Any) -> int:
        """Print two lines per experiment, as four columns do not fit into 80 letters."""
        from fairhit_lab.runner.registry import EXPERIMENTS

        wide = max(map(len, EXPERIMENTS))
        for name, experiment in EXPERIMENTS.items():
            source = f"   [{experiment.source}]" if experiment.source else ""
            console.print(f"{name:<{wide}}  {experiment.takes}{source}", style="bold", **_PLAIN)
            console.print(f"    {experiment.summary}", **_PLAIN)
        return 0

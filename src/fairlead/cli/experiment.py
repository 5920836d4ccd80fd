"""`fairlead experiment`: the papers' experiments and ours by name (experiments/registry.py)."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """The command; each experiment's own flags are read when it is chosen."""
    parser = commands.add_parser(
        "experiment",
        help="experiments by name; `list` shows them",
        description="`fairlead experiment list` shows the names, `... NAME --help` its flags.",
    )
    parser.add_argument("name", metavar="NAME|all|list")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit status: of the first experiment that did not succeed, if any."""
    from rich.console import Console

    from fairlead.errors import ConfigError
    from fairlead.experiments.registry import EXPERIMENTS

    console = Console()
    if options.name == "list":
        _list(console)
        return 0
    if options.name == "all":
        names = [name for name, experiment in EXPERIMENTS.items() if not experiment.alone]
    elif options.name in EXPERIMENTS:
        names = [options.name]
    else:
        known = ", ".join([*EXPERIMENTS, "all", "list"])
        raise ConfigError(f"experiment: expected one of {known}, got {options.name!r}")
    for name in names:
        status = _one(name, options.arguments, console)
        if status:
            return status
    return 0


def _one(name: str, arguments: list[str], console: Any) -> int:
    from fairlead.cli import OneLineParser
    from fairlead.experiments.registry import EXPERIMENTS

    experiment = EXPERIMENTS[name]
    module = experiment.load()
    parser = OneLineParser(prog=f"fairlead experiment {name}", description=experiment.summary)
    module.add_arguments(parser)
    return module.run(parser.parse_args(arguments), console)


def _list(console: Any) -> None:
    from rich.table import Table

    from fairlead.experiments.registry import EXPERIMENTS

    table = Table(box=None)
    for heading in ("name", "what it does", "takes"):
        table.add_column(heading)
    for name, experiment in EXPERIMENTS.items():
        table.add_row(name, experiment.summary, experiment.takes)
    console.print(table)

"""The laboratory's commands: `fairhit` has them where `fairhit_lab` is installed."""

from fairhit.cli.command import Command

COMMANDS = {
    "simulate": Command(
        "a trace through simulated engines", "fairhit_lab.cli.simulate", extra="lab"
    ),
    "trace": Command("import, describe or generate a trace", "fairhit_lab.cli.trace", extra="lab"),
    "experiment": Command(
        "experiments by name; `list` shows them", "fairhit_lab.cli.experiment", extra="lab"
    ),
}

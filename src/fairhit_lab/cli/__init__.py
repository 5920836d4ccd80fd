"""The laboratory's commands: `fairhit` has them where `fairhit_lab` is installed."""

from fairhit_lab.cli import experiment, simulate, trace

COMMANDS = (simulate, trace, experiment)

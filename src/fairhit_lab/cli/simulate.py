"""`fairhit simulate`: a trace in, events and a summary out, the same bytes for the same seed."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fairhit.settings.declaration import setting, settings_of
from fairhit.settings.flags import add_flags, read_flags
from fairhit.settings.kinds import MICROSECONDS, Kind

if TYPE_CHECKING:
    from fairhit_lab.sim.config import WorkerChange

# Titles in --help, and the parts of `SimConfig` whose flags are below each.
SECTIONS = {
    "cluster": ("cluster", "router", "central", "fleet"),
    "engine": ("engine",),
    "scheduler": ("policy", "scheduler"),
}


def _worker_and_time(value: object) -> tuple[int, int]:
    """`W@T` as a worker's number and microseconds."""
    worker, at, time = str(value).partition("@")
    if not (at and worker.isascii() and worker.isdigit()):
        raise ValueError(f"expected W@T, a worker's number and seconds, got {value!r}")
    try:
        return int(worker), MICROSECONDS.read(time)
    except ValueError as error:
        raise ValueError(f"{value}: {error}") from None


def _each_worker_and_time(values: Any) -> tuple[tuple[int, int], ...]:
    return tuple(map(_worker_and_time, values))


Changes = Annotated[tuple[tuple[int, int], ...], Kind("W@T", _each_worker_and_time)]


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """The flags of `fairhit simulate` that are not settings of the simulation itself."""

    events: str | None = setting(None, "file for every event, as JSONL, in order of time", "FILE")
    summary: str | None = setting(None, "file for the summary, as JSON", "FILE")
    no_skip: bool = setting(
        False, "step through like passes one by one: slower, with the same result", shape="none"
    )
    fail: Changes = setting((), "worker W is lost at T seconds", "W@T", shape="again", of="cluster")
    join: Changes = setting(
        (), "worker W comes up at T seconds", "W@T", shape="again", of="cluster"
    )

    def changes(self) -> "tuple[WorkerChange, ...]":
        """The workers that fail and join."""
        from fairhit_lab.sim.config import WorkerChange

        given = [(each, False) for each in self.fail] + [(each, True) for each in self.join]
        return tuple(WorkerChange(time_us=at, worker=worker, up=up) for (worker, at), up in given)


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `fairhit simulate`."""
    from fairhit_lab.sim.config import SimConfig

    parser.add_argument("trace", metavar="TRACE", help="JSONL, also .gz and .zst; - is stdin")
    declared = settings_of(SimulateOptions) | settings_of(SimConfig)
    files = {name: each for name, each in declared.items() if each.of in {"", "run"}}
    add_flags(parser, files)
    for title, parts in SECTIONS.items():
        section = parser.add_argument_group(title)
        add_flags(section, {name: each for name, each in declared.items() if each.of in parts})
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, then print and write what was asked for."""
    from fairhit_lab.cli import simulated
    from fairhit_lab.cli.without_effect import require_effect
    from fairhit_lab.sim.config import HOST_OF, SimConfig

    own = SimulateOptions(**read_flags(settings_of(SimulateOptions), options))
    given = read_flags(settings_of(SimConfig), options)
    given.setdefault("host", HOST_OF[given.get("admission")])
    config = SimConfig(**given, changes=own.changes(), skips=not own.no_skip)
    require_effect(config)
    return simulated.run(config, options.trace, events=own.events, summary=own.summary)

"""`fairhit trace`: import public traces, describe any trace, generate the papers' workloads."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from fairhit.errors import ConfigError
from fairhit.settings.declaration import setting, settings_of
from fairhit.settings.flags import add_flags, read_flags
from fairhit_lab.traces.parameters import WorkloadSetting, read_settings
from fairhit_lab.traces.trace import TraceRow

LIST = "list"


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the three commands below `trace`."""
    kinds = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=type(parser)
    )
    _add_import(kinds)
    _add_describe(kinds)
    _add_generate(kinds)


def _add_import(kinds: Any) -> None:
    from fairhit_lab.traces.importers import FORMATS

    parser = kinds.add_parser(
        "import",
        help="a public trace as ours",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats:\n"
        + _listed({name: one.summary for name, one in FORMATS.items()} | RESULTS),
    )
    parser.add_argument("format", metavar="FORMAT", choices=sorted((*FORMATS, *RESULTS)))
    parser.add_argument(
        "sources", metavar="SRC", nargs="*", help="the files, .gz and .zst unpacked"
    )
    _add_making(parser)
    parser.set_defaults(run=run_import)


def _add_generate(kinds: Any) -> None:
    from fairhit_lab.workloads import GENERATORS

    parser = kinds.add_parser(
        "generate",
        help="a workload of the papers",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="workloads:\n" + _listed({name: one.summary for name, one in GENERATORS.items()}),
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        choices=(LIST, *GENERATORS),
        help="name of a workload below, or `list`",
    )
    _add_making(parser)
    parser.set_defaults(run=run_generate)


@dataclass(frozen=True, kw_only=True)
class MakingOptions:
    """The settings of both commands that write a trace."""

    seed: int = setting(0, "seed of all that is drawn", "N")
    out: str = setting("-", "file to write, packed by its suffix; - is standard output", "FILE")


def _add_making(parser: argparse.ArgumentParser) -> None:
    """The flags of both commands that write a trace."""
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="a setting of it; --settings lists them",
    )
    parser.add_argument(
        "--settings", dest="show", action="store_true", help="list the settings and defaults"
    )
    add_flags(parser, settings_of(MakingOptions))


def _add_describe(kinds: Any) -> None:
    parser = kinds.add_parser(
        "describe", help="lengths, rates, clients and prefix share of a trace"
    )
    parser.add_argument("trace", metavar="TRACE", help="JSONL, .gz and .zst unpacked, - for stdin")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--no-prefixes",
        action="store_true",
        help="leave out the prefix share, which needs every prompt in memory",
    )
    parser.set_defaults(run=run_describe)


def _making(options: argparse.Namespace) -> MakingOptions:
    return MakingOptions(**read_flags(settings_of(MakingOptions), options))


def _listed(summaries: Mapping[str, str]) -> str:
    width = max(map(len, summaries)) + 2
    return "\n".join(f"  {name:{width}}{summary}" for name, summary in summaries.items())


RESULTS = {"vtc-results": "the VTC artifact's all_results_*.jsonl as CSV files; --out is a folder"}


def run_import(options: argparse.Namespace) -> int:
    """Read the sources and write them as a trace."""
    from fairhit_lab.cli.outputs import require_apart
    from fairhit_lab.traces.importers import FORMATS

    if options.format in RESULTS:
        return _run_results(options)
    chosen = FORMATS[options.format]
    if options.show:
        return _show(f"{options.format}: {chosen.summary} ({chosen.source})", chosen.settings())
    if not options.sources:
        raise ConfigError(f"trace import {options.format}: expected at least one file")
    own = _making(options)
    require_apart(options.sources, {"--out": own.out})
    settings = read_settings(chosen.settings(), options.settings)
    return _write(chosen.rows(options.sources, Random(own.seed), **settings), own.out)


def _run_results(options: argparse.Namespace) -> int:
    from fairhit_lab.traces.importers import vtc_results

    if options.show or options.settings:
        raise ConfigError(f"{options.format} has no settings")
    out = _making(options).out
    if out == "-" or not options.sources:
        raise ConfigError(f"trace import {options.format}: expected files and --out FOLDER")
    runs = vtc_results.convert(options.sources, out)
    print(f"{runs} runs -> {out}", file=sys.stderr)
    return 0


def run_generate(options: argparse.Namespace) -> int:
    """Make the workload and write it as a trace."""
    from fairhit_lab.workloads import GENERATORS

    if options.workload == LIST:
        print(_listed({name: f"{one.summary} [{one.source}]" for name, one in GENERATORS.items()}))
        return 0
    chosen = GENERATORS[options.workload]
    if options.show:
        return _show(f"{options.workload}: {chosen.summary} ({chosen.source})", chosen.settings())
    settings = read_settings(chosen.settings(), options.settings)
    own = _making(options)
    return _write(chosen.rows(Random(own.seed), **settings), own.out)


def _show(title: str, settings: Mapping[str, WorkloadSetting]) -> int:
    print(title)
    for name, each in settings.items():
        print(f"  --set {name}={each.shown}".ljust(36), each.kind.words)
    return 0


def _write(rows: Iterator[TraceRow], path: str) -> int:
    from fairhit_lab.cli.row_count import counted
    from fairhit_lab.traces.files import STANDARD, written
    from fairhit_lab.traces.write import write_trace

    try:
        with written(path) as file:
            count = write_trace(counted(rows, "writing"), file)
    except KeyboardInterrupt:
        if path != STANDARD:
            print(f"fairhit: interrupted: {path} was not written", file=sys.stderr)
        raise
    if path != STANDARD:
        print(f"{count:,} requests -> {path}", file=sys.stderr)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Read the trace and say what it is like."""
    from fairhit_lab.cli.row_count import counted
    from fairhit_lab.traces.describe import describe
    from fairhit_lab.traces.trace import read_trace

    rows = counted(read_trace(options.trace), "reading")
    found = describe(rows, prefixes=not options.no_prefixes)
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
        return 0
    from fairhit_lab.cli import described

    described.show(options.trace, found)
    return 0

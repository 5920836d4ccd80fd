"""`fairhit experiment report`: one self-contained page from the studies' result folders."""

import argparse
from pathlib import Path

from rich.console import Console

from fairhit.errors import ConfigError, in_words
from fairhit_lab.report.folders import MissingStudy, read_folders
from fairhit_lab.report.page import page_of
from fairhit_lab.runner.study_command import OUT as RESULTS
from fairhit_lab.runner.study_command import QUICK_OUT as QUICK_RESULTS
from fairhit_lab.studies import STUDIES, study_of

OUT = Path("results") / "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the report."""
    parser.add_argument(
        "--results",
        metavar="DIR",
        help=f"a folder for each study ({RESULTS}; where there is none, {QUICK_RESULTS})",
    )
    parser.add_argument("--out", default=str(OUT), metavar="FILE.html", help=f"the page ({OUT})")


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the page. Returns 2 if a folder is damaged: the page is written, and its section has the reason.

    A study without results has a section that says so, and is no failure. Raises ConfigError.
    """
    studies = {name: study_of(name) for name in STUDIES}
    with console.status("building the page"):
        found = read_folders(_results(options.results), studies)
        text = page_of(found)
        out = Path(options.out)
        _write(out, text)
    gaps = [each for each in found if isinstance(each, MissingStudy)]
    console.print(
        f"{out}: {len(found) - len(gaps)} of {len(found)} studies, {len(text.encode()) / 1e6:.1f} MB",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    damaged = [each for each in gaps if each.damaged]
    for gap in damaged:
        console.print(f"damaged: {gap.reason}", highlight=False, markup=False, soft_wrap=True)
    if missing := [each.name for each in gaps if not each.damaged]:
        console.print(f"no results: {', '.join(missing)}", highlight=False, soft_wrap=True)
    return 2 if damaged else 0


def _results(given: str | None) -> Path:
    """The folder of a full run if there is one, else that of a quick run."""
    if given:
        return Path(given)
    return QUICK_RESULTS if QUICK_RESULTS.is_dir() and not RESULTS.is_dir() else RESULTS


def _write(out: Path, text: str) -> None:
    """Write the page beside its name first: an earlier page stays intact until then."""
    partial = out.with_name(f"{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise ConfigError(f"--out: {in_words(error)}") from None

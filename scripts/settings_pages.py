"""Writes the tables of settings on pages, from the declarations: `python scripts/settings_pages.py`.

A table is between `<!-- settings NAME -->` and `<!-- /settings -->`. A test compares the pages with `filled`.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from fairhit.cli.service import DemoOptions
from fairhit.engines.settings import PREFIX, Settings
from fairhit.gateway.settings import SECTIONS
from fairhit.local.serve import ServeOptions
from fairhit.settings.declaration import Setting, dashed, settings_of
from fairhit_lab.cli.simulate import SimulateOptions
from fairhit_lab.sim.config import SimConfig

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES = tuple(
    REFERENCE / f"{name}.md" for name in ("gateway", "serve", "simulate", "vllm", "sglang")
)
BLOCK = re.compile(r"(<!-- settings (\S+) -->\n).*?(\n<!-- /settings -->)", re.DOTALL)


def flags_table(settings: Iterable[Setting]) -> str:
    """A Markdown table of flags: `*` marks those that a reload applies."""
    rows = ["| flag | default | meaning |", "|---|---|---|"]
    for each in settings:
        more = " ..." if each.shape == "many" else ""
        value = f" {_escaped(each.metavar)}{more}" if each.metavar else ""
        also = "".join(f"; also `--{dashed(alias)}`" for alias in each.aliases)
        again = "; may be repeated" if each.shape == "again" else ""
        live = " \\*" if each.live else ""
        meaning = f"{_escaped(each.help)}{_choices(each)}{again}{also}"
        rows.append(f"| `--{each.flag}{value}`{live} | {_default(each)} | {meaning} |")
    return "\n".join(rows)


def keys_table(settings: Iterable[Setting], prefix: str, *, with_keys: bool) -> str:
    """A Markdown table of a plug-in's settings: key, environment variable, default, meaning."""
    rows = [
        "| key | environment | default | meaning |\n|---|---|---|---|"
        if with_keys
        else "| environment | default | meaning |\n|---|---|---|"
    ]
    for each in settings:
        key = f"| `{each.name}` " if with_keys else ""
        meaning = f"{_escaped(each.help)}{_choices(each)}"
        rows.append(f"{key}| `{prefix}{each.name.upper()}` | {_default(each)} | {meaning} |")
    return "\n".join(rows)


def _default(setting: Setting) -> str:
    words = setting.default_words
    is_word = isinstance(setting.default, str) and not setting.shown and words
    return f"`{words}`" if is_word else words


def _choices(setting: Setting) -> str:
    names = setting.kind.choices
    return f": {', '.join(f'`{name}`' for name in names)}" if names else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _sglang() -> str:
    # The policy is SGLang's own --schedule-policy.
    ours = [each for each in settings_of(Settings).values() if each.name != "scheduler"]
    return keys_table(ours, PREFIX, with_keys=False)


def _simulate() -> str:
    declared = settings_of(SimulateOptions) | settings_of(SimConfig)
    return flags_table(declared.values())


def _flags(declaring: type) -> Callable[[], str]:
    return lambda: flags_table(settings_of(declaring).values())


TABLES: dict[str, Callable[[], str]] = {
    **{section.__name__: _flags(section) for section in SECTIONS},
    "serve": _flags(ServeOptions),
    "demo": _flags(DemoOptions),
    "simulate": _simulate,
    "vllm": lambda: keys_table(settings_of(Settings).values(), PREFIX, with_keys=True),
    "sglang": _sglang,
}


def filled(text: str) -> str:
    """A page with every table of settings written anew."""
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> int:
    """Write the tables into all pages."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

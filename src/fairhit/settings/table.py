"""Tables of settings for pages, from their declarations."""

from collections.abc import Iterable

from fairhit.settings.declaration import Setting, dashed


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

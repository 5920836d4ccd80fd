"""HTML that is escaped by construction: text goes in as `str`, only `Markup` goes in as it is."""

from html import escape


class Markup(str):
    """HTML, not text."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool | int | None) -> Markup:
    """An element. An attribute's underscores are dashes, one at its end is for Python's keywords.

    True is an attribute without value; False and None are none.
    """
    opening = [name]
    for argument, value in attributes.items():
        key = argument.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(key)
        elif value is not None and value is not False:
            opening.append(f'{key}="{escape(str(value))}"')
    return Markup(f"<{' '.join(opening)}>{together(*children)}</{name}>")


def together(*parts: str) -> Markup:
    """Text and elements, one behind the other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))

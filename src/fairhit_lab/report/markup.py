"""HTML that is escaped by construction, and SVGs embedded in it."""

import re
from html import escape


class Markup(str):
    """HTML, not text."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool | int | None) -> Markup:
    """An HTML element. In attribute names underscores become dashes, except one at the end.

    True is an attribute without value; False and None leave the attribute out.
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
    """Texts (escaped) and elements, concatenated."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


# Numbers with more digits than are visible: hundredths of a point are enough.
LONG = re.compile(r"\d+\.\d{3,}")
# Attributes that are positions; in others, such as scales, every digit counts.
PLACES = re.compile(r' (?:d|x|y|width|height|points)="[^"]*"|translate\([^)]*\)')
UNSEEN = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
# References to an id; colours are no references.
REFERENCE = re.compile(r'(href="|url\()#([^\s"\')]+)')
IDENTITY = re.compile(r' id="([^"]*)"')


def address_of(svg: str) -> str:
    """An SVG as a data URL for a double-quoted `src`, at about a third of its size. O(length)."""
    svg = UNSEEN.sub("", svg[svg.index("<svg") :])
    svg = PLACES.sub(lambda places: LONG.sub(_rounded, places[0]), svg)
    # Ids as short as possible: each letter of a figure's text refers to a shape.
    names = dict.fromkeys(name for _, name in REFERENCE.findall(svg))
    short = {name: f"n{number:x}" for number, name in enumerate(names)}
    svg = IDENTITY.sub(lambda at: f' id="{short[at[1]]}"' if at[1] in short else "", svg)
    svg = REFERENCE.sub(lambda at: f"{at[1]}#{short[at[2]]}", svg).replace(" xlink:href=", " href=")
    svg = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg))
    if "'" not in svg:
        svg = svg.replace('"', "'")
    # Escaped as a URL, then as an attribute; "<" is allowed in both.
    for character, code in (("%", "%25"), ("#", "%23"), ('"', "%22"), ("&", "&amp;")):
        svg = svg.replace(character, code)
    return f"data:image/svg+xml,{svg}"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

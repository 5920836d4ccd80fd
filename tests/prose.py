"""Words of the field instead of a dialect: which words this project does not use, and where it still does.

python -m tests.prose src/fairhit/core docs    # every complaint in these files and folders
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

# The word, and what to write; docs/glossary.md has the words of the project. Code in `backticks` is exempt.
BANNED: dict[str, str] = {
    r"(?:a|the|each|every|one|this|that|next|last|same|per|whole|first|another) looks?": "scheduling pass",
    r"(?<!-)misfits?(?! stop| skip)": "request that does not fit",
    r"pass(?:ed|es|ing)? over": "skip",
    r"owed|owes": "credit, debt, deficit",
    r"told": "notified, given",
    r"hears?|heard": "is notified of, receives",
    r"who waits": "waiting requests",
    r"patience": "timeout",
    r"late[- ]bound": "unassigned",
    r"roomy": "with free capacity",
    r"stretch(?:es)?": "run of tokens, trie edge",
    r"greetings?": "preamble event",
    r"crew": "supervisor",
    r"(?:put|puts|set|kept) aside": "skipped",
    r"slotless": "without a LoRA slot",
    r"guess(?:es|ed)?": "estimate, optimistic entry",
    r"nobody|somebody|whoever": "name the person or the thing",
    r"seats?": "request record, slot",
}
_BANNED = {
    re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in BANNED.items()
}
# Parts of names (`misfit` is the name of a flag and a setting), as `begin_look` or `CutLooks` have them.
BANNED_IN_NAMES = frozenset(
    (
        "look",
        "looks",
        "owed",
        "owes",
        "told",
        "hears",
        "stretch",
        "greeting",
        "patience",
        "greetings",
        "crew",
        "slotless",
        "aside",
        "seat",
        "guess",
        "whoever",
        "nobody",
        "somebody",
    )
)
OPENINGS = frozenset(
    (
        "it",
        "its",
        "itself",
        "this",
        "that",
        "these",
        "those",
        "they",
        "them",
        "their",
        "he",
        "she",
        "such",
        "who",
        "whose",
        "whom",
        "what",
        "which",
        "where",
        "how",
        "whether",
        "one",
        "ones",
        "all",
        "each",
        "some",
        "nobody",
        "somebody",
        "nothing",
        "anything",
        "everything",
        "whatever",
        "whoever",
    )
)
_CODE = re.compile(r"`[^`]*`")
# Code, and blocks that are written from the texts of committed runs.
_FENCE = re.compile(r"^```.*?^```|<!-- ([\w -]+) -->.*?<!-- /\1 -->", re.MULTILINE | re.DOTALL)


def words_in(text: str) -> Iterator[str]:
    """Each banned word of a text, with what to write instead."""
    plain = _CODE.sub("``", text)
    for pattern, instead in _BANNED.items():
        for found in pattern.finditer(plain):
            yield f"{found.group(0)!r}: write {instead}"


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings and messages of a module: strings of more than one word, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and " " in token.string
        ):
            yield token.start[0], token.string


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Names that a module defines: classes, functions, arguments, attributes and variables."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def dialect(path: Path, source: str) -> Iterator[str]:
    """Every banned word in a module or a page, as `line: complaint`."""
    if path.suffix != ".py":
        text = _FENCE.sub(lambda block: "\n" * block.group(0).count("\n"), source)
        for number, line in enumerate(text.splitlines(), 1):
            yield from (f"{number}: {complaint}" for complaint in words_in(line))
        return
    for line, text in texts_of(source):
        yield from (f"{line}: {complaint}" for complaint in words_in(text))
    for line, name in names_in(source):
        parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}
        yield from (
            f"{line}: {word!r} in the name {name}" for word in sorted(parts & BANNED_IN_NAMES)
        )


def docstrings_of(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def opens_with_pronoun(docstring: str) -> bool:
    """Whether the first word stands for something that the reader has not been given."""
    first = re.match(r"[A-Za-z]+", docstring)
    return first is not None and first.group(0).lower() in OPENINGS


def files_below(place: Path) -> list[Path]:
    """The modules and pages of a folder, or the file itself."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in {".py", ".md"})


def main(places: list[str]) -> int:
    """Print every complaint; 1 if there is any."""
    count = docstrings = pronouns = 0
    for path in (file for place in places for file in files_below(Path(place))):
        source = path.read_text(encoding="utf-8")
        for complaint in dialect(path, source):
            print(f"{path}:{complaint}")
            count += 1
        for line, text in docstrings_of(source) if path.suffix == ".py" else ():
            docstrings += 1
            if opens_with_pronoun(text):
                pronouns += 1
                print(f"{path}:{line}: begins with a pronoun: {text.splitlines()[0]}")
    print(f"{count} banned words; {pronouns} of {docstrings} docstrings begin with a pronoun")
    return int(bool(count or pronouns))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Rooms of human size: entries of a folder, import cycles, public class names, sizes of protocols.

And what a module says of another file: that file exists.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.test_tidy import SOURCES

ROOT = SOURCES.parent

ENTRIES, PROTOCOL_METHODS = 12, 5

# A folder with more entries, and why it is still one room.
CROWDED: dict[str, str] = {
    "fairhit": "the rooms themselves, and six modules that every command imports",
}
# A protocol with more methods, and why it is still one.
WIDE: dict[str, str] = {}
# Files that a module names and that are not of this repository.
FOREIGN = {"README.md", "api_server.py", "setup.py"}
FILE_NAME = re.compile(r"[\w/.-]*\w\.(?:py|md)\b")

Sources = Mapping[Path, str]


def sources() -> dict[Path, str]:
    """Every module of both packages, with its text."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py"))}


def crowded(files: Iterable[Path]) -> Iterator[str]:
    """Folders with more than ENTRIES modules, data files and folders, `__init__.py` not counted."""
    entries: dict[Path, set[str]] = defaultdict(set)
    for path in files:
        below = path
        while below not in (SOURCES, below.parent):
            if below.name != "__init__.py":
                entries[below.parent].add(below.name)
            below = below.parent
    for folder, names in sorted(entries.items()):
        name = str(folder.relative_to(SOURCES))
        if len(names) > ENTRIES and name not in CROWDED:
            yield f"{name}: {len(names)} entries, at most {ENTRIES}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph_of(files: Sources) -> dict[str, set[str]]:
    """The modules that each module imports, those imported for types or inside functions included."""
    names = {module_name(path) for path in files}
    graph: dict[str, set[str]] = {}
    for path, text in files.items():
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    wanted.add(full if full in names else node.module)
            elif isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names)
        own = module_name(path)
        # A package's __init__ may import what it is made of; its modules do not import it back.
        graph[own] = {name for name in wanted & names if name != own}
    return graph


def cycles(files: Sources) -> Iterator[str]:
    """Groups of modules that import each other (Tarjan's strongly connected components)."""
    graph = graph_of(files)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> Iterator[str]:
        order[name] = lowest[name] = len(order)
        path.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                yield from visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in path:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            group = path[path.index(name) :]
            del path[path.index(name) :]
            if len(group) > 1:
                yield " <-> ".join(sorted(group))

    for name in sorted(graph):
        if name not in order:
            yield from visit(name)


def repeated_classes(files: Sources) -> Iterator[str]:
    """Public classes of one name in two modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, text in files.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_name(path))
    for name, modules in sorted(homes.items()):
        if len(modules) > 1:
            yield f"{name}: {', '.join(modules)}"


def wide_protocols(files: Sources) -> Iterator[str]:
    """Protocols with more than PROTOCOL_METHODS methods of their own."""
    for text in files.values():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef) or node.name in WIDE:
                continue
            if not any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases):
                continue
            methods = [
                each
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            if len(methods) > PROTOCOL_METHODS:
                yield f"{node.name}: {len(methods)} methods, at most {PROTOCOL_METHODS}"


def missing_files(files: Sources) -> Iterator[str]:
    """Files that a module names and that are not there.

    A bare name is looked for in the module's own room, one with a folder in the whole repository.
    """
    folders = ("src", "scripts", "tests", "docs", "benchmarks", "examples")
    found = [path for each in folders for path in (ROOT / each).rglob("*.*")]
    everywhere = [f"/{path.relative_to(ROOT)}" for path in found]
    for path, text in files.items():
        room = "/".join(path.relative_to(ROOT).parts[:3])
        for name in set(FILE_NAME.findall(text)) - FOREIGN:
            near = (
                everywhere
                if "/" in name
                else [each for each in everywhere if each.startswith(f"/{room}/")]
            )
            if not any(each.endswith(f"/{name}") for each in near):
                yield f"{path.relative_to(ROOT)}: no {name}"


def package_files() -> list[Path]:
    return [
        path
        for path in SOURCES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    ]


def test_no_folder_has_too_many_entries():
    assert list(crowded(package_files())) == []


def test_no_module_imports_a_module_that_imports_it():
    assert list(cycles(sources())) == []


def test_a_public_class_name_has_one_meaning():
    assert list(repeated_classes(sources())) == []


def test_protocols_are_small():
    assert list(wide_protocols(sources())) == []


def test_files_that_a_module_names_are_there():
    assert list(missing_files(sources())) == []


def test_exceptions_are_needed():
    """An exception that outlives its reason would let the next one pass."""
    folders = {str(path.parent.relative_to(SOURCES)) for path in package_files()}
    assert set(CROWDED) <= folders


A = SOURCES / "fairhit" / "a.py"
B = SOURCES / "fairhit" / "b.py"


def test_each_check_can_fail():
    folder = SOURCES / "fairhit" / "core"
    many = [folder / f"m{number}.py" for number in range(ENTRIES + 1)]
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(PROTOCOL_METHODS + 1))

    assert list(crowded(many)) and not list(crowded([*many[1:], folder / "__init__.py"]))
    assert list(cycles({A: "import fairhit.b", B: "def f():\n    from fairhit import a"}))
    assert not list(cycles({A: "import fairhit.b", B: ""}))
    assert list(repeated_classes({A: "class Host: ...", B: "class Host: ..."}))
    assert not list(repeated_classes({A: "class _Host: ...", B: "class _Host: ..."}))
    assert list(wide_protocols({A: f"class Wide(Protocol):\n{methods}"}))
    assert not list(wide_protocols({A: f"class Wide:\n{methods}"}))
    assert list(missing_files({SOURCES / "fairhit" / "core" / "a.py": '"""See `scheduler.py`."""'}))
    assert not list(missing_files({SOURCES / "fairhit" / "core" / "a.py": "# core/request.py"}))

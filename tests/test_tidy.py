"""The style guide, executed: floors, clocks, names, lengths, docstrings. Each check is shown able to fail."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
SERVING, LAB = "fairhit", "fairhit_lab"
CODE = ("src", "tests", "scripts", "benchmarks")

FILE_LINES, FUNCTION_LINES = 500, 60

# What stands on what. Two parts with one number may not import each other; a part may always import itself.
# The serving package never imports the laboratory, which may import all of serving that is below its part.
FLOORS = {
    SERVING: {
        "errors": 0,
        "installing": 0,
        "core": 1,
        "client_names": 1.5,
        "policies": 2,
        "routers": 2,
        "": 2.5,  # fairhit/__init__.py: the public names; every import of the package runs it
        "settings": 2.6,  # how any part declares its settings
        "dispatch": 3,
        "routing": 3.5,  # the public names of routers, indices and dispatcher
        "built": 0.5,
        "gateway": 5,
        "engines": 5,
        # Within floor 5: engines and gateway together, then the command line.
        "local": 5.1,
        "cli": 5.4,
        "__main__": 5.5,
    },
    LAB: {
        "": 0.9,  # its first import checks the build
        "events": 1.5,
        "baselines": 2.6,
        "traces": 3,
        "workloads": 3.05,
        "metrics": 3.1,  # reads and writes its files as traces do: packed, whole, one clear error
        "sim": 4,
        "calibration": 5.2,
        "studies": 5.2,
        "report": 5.2,
        "runner": 5.2,
        "cli": 5.5,
    },
}
# One program: a study names its figure's panels, the runner runs studies, the report shows both.
TOGETHER = {"studies", "report", "runner", "calibration"}

CLOCKS = {"time", "uuid", "secrets"}
# Attributes that read the clock, the environment or a generator nobody passed in.
HIDDEN_INPUTS = {
    ("os", "environ"), ("os", "getenv"), ("os", "urandom"), ("os", "getpid"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip
RANDOM_ALLOWED = {"Random", "Generator", "SeedSequence", "PCG64"}

BANNED_WORDS = {"util", "utils", "helper", "helpers", "misc", "manager", "base"}
BANNED_ENDINGS = ("_v2", "_new", "_fast", "_old", "V2", "New", "Fast")

Check = Callable[[Path, str], Iterator[str]]


def part_of(path: Path) -> tuple[str, str]:
    """`src/fairhit/core/service.py` -> (fairhit, core); `src/fairhit/built.py` -> (fairhit, built)."""
    package, first, *_ = path.relative_to(SOURCES).parts
    return package, "" if first == "__init__.py" else first.removesuffix(".py")


def floor_of(path: Path) -> float:
    package, part = part_of(path)
    return FLOORS[package].get(part, 0)


def imports(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in the file, with its line."""
    package = path.relative_to(SOURCES).parts[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            parent = ".".join(package[: len(package) - node.level + 1])
            yield node.lineno, f"{parent}.{node.module or node.names[0].name}"
        elif isinstance(node, ast.ImportFrom) and node.module in FLOORS:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, str(node.module)


def floors(path: Path, source: str) -> Iterator[str]:
    package, own = part_of(path)
    if own not in FLOORS[package]:
        yield f"{own!r} has no floor: give it one in tests/test_tidy.py"
        return
    for line, module in imports(path, source):
        top, _, rest = module.partition(".")
        part = rest.partition(".")[0]
        if top == LAB and package == SERVING:
            yield f"{line}: {module}: serving imports nothing of the laboratory"
        elif top in FLOORS and part in FLOORS[top] and (top, part) != (package, own):
            beside = top == package == LAB and {part, own} <= TOGETHER
            if FLOORS[top][part] >= FLOORS[package][own] and not beside:
                yield f"{line}: {module} is not below {own}"
        foreign = top not in FLOORS and top not in sys.stdlib_module_names
        if foreign and FLOORS[package][own] < 3:
            yield f"{line}: floors 1 and 2 import nothing third-party, here {module}"


def hidden_inputs(path: Path, source: str) -> Iterator[str]:
    if floor_of(path) >= 5:
        return
    for line, module in imports(path, source):
        if module.partition(".")[0] in CLOCKS:
            yield f"{line}: {module}: below floor 5 time and randomness are arguments"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "random"}:
            for alias in node.names:
                hidden = (node.module, alias.name) in HIDDEN_INPUTS
                if hidden or (node.module == "random" and alias.name not in RANDOM_ALLOWED):
                    yield f"{node.lineno}: {node.module}.{alias.name} is a hidden input"
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            drawn = owner == "random" and node.attr not in RANDOM_ALLOWED
            # `np.random.default_rng(seed)` is a generator passed in; without a seed it is not.
            if (owner, node.attr) in HIDDEN_INPUTS or (drawn and node.attr != "default_rng"):
                yield f"{node.lineno}: {owner}.{node.attr} is a hidden input"
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            if ast.unparse(node.func).endswith(("default_rng", "random.Random")):
                yield f"{node.lineno}: {ast.unparse(node)} has no seed"


def names(path: Path, source: str) -> Iterator[str]:
    defined = [(0, path.stem)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.append((node.lineno, node.name))
    for line, name in defined:
        words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)
        if {word.lower() for word in words} & BANNED_WORDS:
            yield f"{line}: {name}: says nothing about what it is"
        if name.endswith(BANNED_ENDINGS):
            yield f"{line}: {name}: name the difference, not the age"


def lengths(path: Path, source: str) -> Iterator[str]:
    if (count := source.count("\n")) > FILE_LINES:
        yield f"{count} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {count} lines, at most {FUNCTION_LINES}"


def laws(path: Path, source: str) -> Iterator[str]:
    tree = ast.parse(source)
    if tree.body and not ast.get_docstring(tree):
        yield "1: a file opens with its law: a docstring saying what lives here"


def docstrings(path: Path, source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") and not ast.get_docstring(node):
                yield f"{node.lineno}: {node.name} is public and has no docstring"


def leftovers(path: Path, source: str) -> Iterator[str]:
    # Spelled in halves, so that this file does not find itself.
    for line, text in enumerate(source.splitlines(), 1):
        if re.search(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b", text):
            yield f"{line}: finish it or open an issue"
        if re.search(r"(?<![\w.~])/(wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers)/\w", text):
            yield f"{line}: a path of one machine"


ON_PACKAGE: list[Check] = [floors, hidden_inputs, docstrings]
ON_CODE: list[Check] = [names, lengths, laws]


def found(check: Check, files: Iterator[Path]) -> list[str]:
    """Every complaint of one check, as `file:line: what`."""
    return [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in sorted(files)
        for complaint in check(path, path.read_text(encoding="utf-8"))
    ]


def code_files() -> Iterator[Path]:
    for folder in CODE:
        yield from (ROOT / folder).rglob("*.py")


def text_files() -> Iterator[Path]:
    yield from code_files()
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/*", "docs/**/*.md", ".gitignore"):
        yield from ROOT.glob(pattern)


@pytest.mark.parametrize("check", ON_PACKAGE, ids=lambda check: check.__name__)
def test_the_package_keeps_the_guide(check: Check):
    assert found(check, SOURCES.rglob("*.py")) == []


@pytest.mark.parametrize("check", ON_CODE, ids=lambda check: check.__name__)
def test_all_code_keeps_the_guide(check: Check):
    assert found(check, code_files()) == []


def test_nothing_is_left_over():
    assert found(leftovers, text_files()) == []


LONG_FUNCTION = '"""Law."""\ndef f():\n' + "    x = 1\n" * FUNCTION_LINES

BAD = [
    (floors, "fairhit/core/a.py", "import fairhit.policies.dlpm"),
    (floors, "fairhit/core/a.py", "def f():\n    from fairhit_lab.sim import kernel"),
    (floors, "fairhit/core/a.py", "from ..gateway import server"),
    (floors, "fairhit/core/a.py", "import numpy"),
    (floors, "fairhit/errors.py", "from fairhit import core"),
    (floors, "fairhit/policies/a.py", "from fairhit.routers.d2lpm import D2LPM"),
    (floors, "fairhit/gateway/a.py", "from fairhit.engines import settings"),
    (floors, "fairhit/cli/a.py", "import fairhit_lab.sim"),
    (floors, "fairhit_lab/sim/a.py", "from fairhit.gateway import server"),
    (floors, "fairhit_lab/sim/a.py", "import fairhit_lab.cli"),
    (floors, "fairhit/newcomer/a.py", "import ast"),
    (hidden_inputs, "fairhit/core/a.py", "import time"),
    (hidden_inputs, "fairhit_lab/sim/a.py", "from time import monotonic"),
    (hidden_inputs, "fairhit/core/a.py", "import random\nrandom.shuffle([])"),
    (hidden_inputs, "fairhit/core/a.py", "from random import shuffle"),
    (hidden_inputs, "fairhit/core/a.py", "import random\nrandom.Random()"),
    (hidden_inputs, "fairhit/core/a.py", "import os\nos.environ['A']"),
    (hidden_inputs, "fairhit/core/a.py", "import os\nos.urandom(8)"),
    (hidden_inputs, "fairhit_lab/metrics/a.py", "import datetime\ndatetime.datetime.now()"),
    (hidden_inputs, "fairhit_lab/traces/a.py", "import numpy as np\nnp.random.normal()"),
    (hidden_inputs, "fairhit_lab/traces/a.py", "import numpy as np\nnp.random.default_rng()"),
    (hidden_inputs, "fairhit/dispatch.py", "import uuid"),
    (names, "fairhit/core/utils.py", ""),
    (names, "fairhit/core/a.py", "class QueueManager: ..."),
    (names, "fairhit/core/a.py", "def prompt_helper(): ..."),
    (names, "fairhit/core/a.py", "def match_fast(): ..."),
    (names, "fairhit/core/waiting_v2.py", ""),
    (lengths, "fairhit/core/a.py", "\n" * (FILE_LINES + 1)),
    (lengths, "fairhit/core/a.py", LONG_FUNCTION),
    (laws, "fairhit/core/a.py", "x = 1"),
    (docstrings, "fairhit/core/a.py", "def f(): ..."),
    (docstrings, "fairhit/core/a.py", "class A: ..."),
    (leftovers, "fairhit/core/a.py", "# TO" + "DO later"),
    (leftovers, "fairhit/core/a.py", "open('/ho" + "me/me/data')"),
]


@pytest.mark.parametrize(("check", "path", "source"), BAD)
def test_each_check_can_fail(check: Check, path: str, source: str):
    """A check that never complains would let everything pass and look just as green."""
    assert list(check(SOURCES / path, source))


GOOD = '''"""A law."""
import random
from fairhit.core.request import Request
from fairhit.errors import ConfigError

class Database:
    """Its name only contains a banned word."""

def draw(rng: random.Random, seed: int) -> float:
    """Randomness is passed in, or seeded."""
    return rng.random() + random.Random(seed).random()
'''


@pytest.mark.parametrize("check", [*ON_PACKAGE, *ON_CODE, leftovers])
def test_good_code_passes_every_check(check: Check):
    assert list(check(SOURCES / SERVING / "policies" / "dlpm.py", GOOD)) == []

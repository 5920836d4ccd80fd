"""Records of cases that ran, packed as JSON, and the keys by which the cache finds them.

A fresh outcome and a cached one are both read from the packed record, so both give the same bytes.
"""

import ast
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import fairhit
from fairhit.local import provenance
from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.studies.shared.study import Case, Measured, Outcome

# Both packages, side by side.
SOURCES = Path(fairhit.__file__).parent.parent
# Sources that every outcome depends on. Figures and commands may change without a new run.
PARTS = (
    "fairhit/core", "fairhit/dispatch", "fairhit/policies", "fairhit/routers", "fairhit/settings",
    "fairhit_lab/baselines", "fairhit_lab/sim", "fairhit_lab/events.py", "fairhit_lab/traces",
    "fairhit_lab/workloads", "fairhit_lab/metrics",
)  # fmt: skip
# Modules of studies count if a case imports them, directly or not, unless they only read outcomes.
HERE = "fairhit_lab.studies"
NOT_RUN = {f"{HERE}.shared.{name}" for name in ("panel", "results", "measures")}


class Record(NamedTuple):
    """An outcome, and the seconds that its run took on this machine."""

    outcome: Outcome
    cpu_s: float
    wall_s: float


def packed(record: Record) -> bytes:
    """The record as compressed JSON. Raises ValueError if a summary has a number that JSON lacks."""
    import zstandard

    outcome = record.outcome
    document = {
        "cpu_s": round(record.cpu_s, 3),
        "wall_s": round(record.wall_s, 3),
        "summary": outcome.summary,
        "series": outcome.series,
        "requests": outcome.requests,
    }
    return zstandard.compress(json.dumps(document, allow_nan=False).encode())


def unpacked(content: bytes) -> Record:
    """The record that was packed. Raises ValueError if the bytes are not a record."""
    import zstandard

    try:
        document = json.loads(zstandard.decompress(content))
        outcome = Outcome(
            summary=dict(document["summary"]),
            series=[SeriesPoint(*point) for point in document["series"]],
            requests=[Row(*row) for row in document["requests"]],
        )
        return Record(outcome, float(document["cpu_s"]), float(document["wall_s"]))
    except (zstandard.ZstdError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def config_of(case: Case) -> str:
    """The hash of a case's description, twelve letters: the same in every commit, for every seed."""
    return _sha256(_canonical(_described(case)).encode())[:12]


def key_of(case: Case, seed: int, data: Path | None) -> str:
    """The cache key: case, seed, the code that runs it and its data; of timed cases the machine, too."""
    of: dict[str, Any] = {
        "case": _described(case),
        "seed": seed,
        "code": code_digest(),
        "run": source_digest(type(case).__module__),
        "classes": _classes(case),
        "data": {name: _data_digest(data / name) for name in case.needs} if data else {},
    }
    if isinstance(case, Measured):
        of["processor"] = provenance.processor()
        of["python"] = platform.python_version()
        of["function"] = source_digest(case.function.partition(":")[0])
    return _sha256(_canonical(of).encode())


def _classes(case: Case) -> dict[str, list[str]]:
    """The class of each object in the case, with its code where `code_digest` does not include it.

    Two classes may have the same fields and do different things.
    """
    found: dict[str, list[str]] = {}
    waiting: list[tuple[str, object]] = [("", case)]
    while waiting:
        place, value = waiting.pop()
        kind = type(value)
        if is_dataclass(value) or hasattr(kind, "_fields"):
            found[place] = [f"{kind.__module__}:{kind.__qualname__}", _code_of(kind.__module__)]
        waiting += [(f"{place}.{name}", each) for name, each in _inside(value)]
    return found


def _inside(value: object) -> list[tuple[str, object]]:
    """The parts of a value by name; empty for texts and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        # Labels name a case, and have no effect on its outcome.
        names = [each.name for each in fields(value) if each.name != "labels"]
        return [(name, getattr(value, name)) for name in names]
    if isinstance(value, Mapping):
        return [(str(name), each) for name, each in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [(str(number), each) for number, each in enumerate(value)]
    return []


def _code_of(module: str) -> str:
    """The digest of a module, empty where `code_digest` includes it."""
    part = "/".join(module.split(".")[:2])
    return "" if part in PARTS else source_digest(module)


@cache
def code_digest() -> str:
    """The digest of every file in PARTS. Takes some milliseconds."""
    whole = hashlib.sha256()
    for part in PARTS:
        of = SOURCES / part
        for path in [of] if of.is_file() else sorted(of.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(f"{path.relative_to(SOURCES)} {_sha256(path.read_bytes())}\n".encode())
    return whole.hexdigest()


@cache
def source_digest(module: str) -> str:
    """The digest of a module that runs cases and of the studies' modules it imports, transitively."""
    found: dict[str, str] = {}
    wanted = [module]
    while wanted:
        name = wanted.pop()
        path = _file_of(name)
        if path is None or name in found or name in NOT_RUN:
            continue
        content = path.read_bytes()
        found[name] = _sha256(content)
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HERE):
                wanted += [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
    return _sha256(_canonical(found).encode())


def _file_of(module: str) -> Path | None:
    """The file of a module; None if the name is not a module."""
    if not module.startswith(("fairhit.", "fairhit_lab.")):
        return Path(str(import_module(module).__file__))
    path = SOURCES.joinpath(*module.split("."))
    return next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )


@cache
def _data_digest(path: Path) -> str:
    """The digest of a file, or of all files below a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        if file.is_file():
            whole.update(file.read_bytes())
    return whole.hexdigest()


def _canonical(value: Any) -> str:
    """A canonical text of a value: settings may be mappings in any order, and frozen dataclasses."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {"": type(value).__name__, **asdict(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a case's settings: no JSON for {type(value).__name__}")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def configs_of(cases: Iterator[Case]) -> dict[str, dict[str, Any]]:
    """Descriptions of all configurations by their hash, for about.json."""
    return {config_of(case): json.loads(_canonical(_described(case))) for case in cases}


def _described(case: Case) -> dict[str, Any]:
    return {"kind": type(case).__name__, **case.described()}

"""The tables of GPUs and models, and how a user's own rows are read from a YAML file."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from fairhit.errors import ConfigError, in_words
from fairhit_lab.sim.hardware.models import GPUS, MODELS, Gpu, TransformerModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Constants:
    """GPUs and models that a step time may name."""

    gpus: Mapping[str, Gpu] = field(default_factory=lambda: GPUS)
    models: Mapping[str, TransformerModel] = field(default_factory=lambda: MODELS)


BUILT_IN = Constants()


def read_constants(path: Path) -> Constants:
    """The tables with the rows of a YAML file added; its rows go before ours of the same name.

    The file has `gpus:` and `models:`, each a mapping of names to the fields of `Gpu` and `TransformerModel`.
    Raises ConfigError, one line that names the file and the key.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = yaml.safe_load(text)
        _require_unique(yaml.compose(text, yaml.SafeLoader), str(path))
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not text in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML") from None
    top = _mapping(tree, str(path))
    for key in top:
        if key not in {"gpus", "models"}:
            raise ConfigError(f"{path}: {key}: unknown; expected gpus or models")
    rows = {
        kind: {
            name: _row(row, f"{path}: {kind}.{name}", shape)
            for name, row in _mapping(top.get(kind, {}), f"{path}: {kind}").items()
        }
        for kind, shape in (("gpus", Gpu), ("models", TransformerModel))
    }
    return Constants(gpus=GPUS | rows["gpus"], models=MODELS | rows["models"])


def _require_unique(node: Any, where: str) -> None:
    """YAML lets the last of two equal keys win, and says nothing. Raises ConfigError."""
    seen: set[str] = set()
    for key, value in node.value if getattr(node, "id", None) == "mapping" else ():
        name = str(key.value)
        if name in seen:
            line = key.start_mark.line + 1
            raise ConfigError(f"{where}, line {line}: {name}: expected once, got twice")
        seen.add(name)
        _require_unique(value, where)


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a mapping of names, got {value!r:.60}")
    for key in value:
        if not isinstance(key, str) or ":" in key or not key:
            raise ConfigError(f"{where}: expected a name without colons, got {key!r:.60}")
    return value


def _row(value: object, where: str, shape: type[Gpu] | type[TransformerModel]) -> Any:
    """A row of a table, with every field checked."""
    row = _mapping(value, where)
    known = {item.name: item for item in fields(shape)}
    for key in row:
        if key not in known:
            raise ConfigError(f"{where}.{key}: unknown; expected one of {', '.join(known)}")
    for name, item in known.items():
        if name in row:
            _check(row[name], item.type, where=f"{where}.{name}", name=name)
        elif item.default is MISSING:
            raise ConfigError(f"{where}.{name}: missing")
    return shape(**row)


# May be nothing at all; everything else must be above 0.
MAY_BE_ZERO = {"t0_ms", "g_us", "host_ms", "host_us", "admit_ms"}


def _check(value: object, kind: object, *, where: str, name: str) -> None:
    """Check a value: a count, a share, a switch or a quantity."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: expected true or false, got {value!r:.60}")
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == int | None and value is None:
        return
    if kind in (int, int | None):
        if not isinstance(value, int) or not number or value < 1:
            raise ConfigError(f"{where}: expected a whole number above 0, got {value!r:.60}")
        return
    if not isinstance(value, int | float) or not number or not 0 <= value < 1e9:
        least = "from 0" if name in MAY_BE_ZERO else "above 0"
        raise ConfigError(f"{where}: expected a number {least} and under 10^9, got {value!r:.60}")
    if value == 0 and name not in MAY_BE_ZERO:
        raise ConfigError(f"{where}: expected a number above 0, got {value!r}")
    if name == "p" and value < 1:
        raise ConfigError(f"{where}: expected a number from 1, got {value!r}")

"""Declare a setting once, as a field of a dataclass; flags, environment, files and pages follow from it.

`settings_of` gives the declared settings of a dataclass by name; each reads a value with one line of error.
"""

import dataclasses
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from fairhit.errors import ConfigError
from fairhit.settings import kinds
from fairhit.settings.kinds import Kind

# one: a value; many: values after one flag; again: one value for each time the flag is given; none: a flag
# without a value.
Shape = Literal["one", "many", "again", "none"]
_DECLARED = "setting"


def setting(
    default: Any,
    help: str,  # noqa: A002  argparse calls it so, too
    metavar: str = "",
    *,
    shape: Shape = "one",
    aliases: tuple[str, ...] = (),
    live: bool = False,
    secret: bool = False,
    shown: str = "",
    flag: str = "",
    of: str = "",
    choices: tuple[str, ...] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Any:
    """Declare one setting of a dataclass.

    `aliases` are further names, of other gateways; a reload applies a `live` setting; a `secret` one is in no
    printed form; `shown` describes the default where the value does not; `flag` is the name of the flag if
    that is not the field's; `of` names the part that a setting of the simulator belongs to.
    """
    declared = {
        "help": help, "metavar": metavar, "shape": shape, "aliases": aliases, "live": live, "secret": secret,
        "shown": shown, "flag": flag, "of": of, "choices": choices, "ge": ge, "gt": gt, "le": le,
    }  # fmt: skip
    metadata = {_DECLARED: declared}
    if isinstance(default, dict):
        return field(default_factory=dict, repr=not secret, metadata=metadata)
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A declared setting, as flags, readers and tables use it."""

    name: str
    kind: Kind
    optional: bool
    default: Any
    help: str
    metavar: str
    shape: Shape
    aliases: tuple[str, ...]
    live: bool
    secret: bool
    shown: str
    flag: str  # without leading dashes
    of: str

    @property
    def default_words(self) -> str:
        """The default as a person writes it; empty where there is none."""
        value = self.default
        if self.shown or value is None or (isinstance(value, tuple | Mapping) and not value):
            return self.shown
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 100_000 else str(value)

    def read(self, value: object, where: str) -> Any:
        """The value in its own type. Raises ConfigError that begins with `where`."""
        if value is None and self.optional:
            return None
        try:
            return self.kind.read(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None


def settings_of(declaring: type) -> dict[str, Setting]:
    """The settings that a dataclass declares, by name, in order."""
    return _settings_of(cast("Hashable", declaring))


@cache
def _settings_of(declaring: Hashable) -> dict[str, Setting]:
    assert isinstance(declaring, type) and dataclasses.is_dataclass(declaring)
    hints = get_type_hints(declaring, include_extras=True)
    return {
        item.name: _made(item.name, hints[item.name], _default(item), **item.metadata[_DECLARED])
        for item in dataclasses.fields(declaring)
        if _DECLARED in item.metadata
    }


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _made(
    name: str,
    annotation: Any,
    default: Any,
    *,
    choices: tuple[str, ...],
    flag: str,
    **declared: Any,
) -> Setting:
    bounds = {bound: declared.pop(bound) for bound in ("ge", "gt", "le")}
    inner, optional = without_none(annotation)
    kind = kinds.one_of(*choices) if choices else kind_of(inner, **bounds)
    return Setting(
        name=name, kind=kind, optional=optional, default=default, flag=flag or dashed(name), **declared
    )  # fmt: skip


def without_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation without its `| None`, and whether it has one."""
    if get_origin(annotation) not in {Union, types.UnionType}:
        return annotation, False
    others = [part for part in get_args(annotation) if part is not type(None)]
    assert len(others) == 1, f"a setting has one type, perhaps or None: {annotation}"
    return others[0], True


def kind_of(
    annotation: Any, *, ge: float | None = None, gt: float | None = None, le: float | None = None
) -> Kind:
    """The kind that an annotation names: a `Kind` in `Annotated`, a Literal, or a plain type with bounds."""
    if get_origin(annotation) is Annotated:
        return next(extra for extra in reversed(annotation.__metadata__) if isinstance(extra, Kind))
    if get_origin(annotation) is Literal:
        return kinds.one_of(*get_args(annotation))
    if annotation is int:
        return kinds.whole(*(None if bound is None else int(bound) for bound in (ge, le)))
    if annotation is float:
        return kinds.real(ge, le, above=gt)
    return _PLAIN[annotation]


_PLAIN: Mapping[Callable[..., Any], Kind] = {
    bool: kinds.SWITCH, str: kinds.TEXT, Path: kinds.PATH
}  # fmt: skip


def read_fields(made: Any) -> None:
    """Read each declared setting of a new instance that is not its default, in place. Raises ConfigError."""
    for name, one in settings_of(type(made)).items():
        value = getattr(made, name)
        if type(value) is not type(one.default) or value != one.default:
            object.__setattr__(made, name, one.read(value, one.flag))


def check_fields(made: Any) -> None:
    """Check each declared setting of a new instance, and leave the values as they are. Raises ConfigError."""
    for name, one in settings_of(type(made)).items():
        value = getattr(made, name)
        if not one.kind.reads_text and value != one.default:
            one.read(value, one.flag)


def dashed(name: str) -> str:
    """The name of a setting as flags and files spell it."""
    return name.replace("_", "-")

"""How one setting is declared: its default, its words, its bound, and what it is also called.

A group is a class of settings that belong together; the settings object is all groups at once.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

# one: a value; many: values after one flag; again: a value for each time the flag is given.
Shape = Literal["one", "many", "again"]


class Group(BaseModel):
    """Settings that belong together. The first line of its docstring is their title in --help."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: object, field: ValidationInfo) -> object:
        """`port: yes` is true in YAML, which would pass for port 1."""
        assert field.field_name is not None
        if isinstance(value, bool) and cls.model_fields[field.field_name].annotation is not bool:
            raise ValueError(f"expected a value, got {str(value).lower()}")
        return value


def setting(
    default: Any,
    words: str,
    metavar: str = "",
    *,
    shape: Shape = "one",
    also: tuple[str, ...] = (),
    live: bool = False,
    secret: bool = False,
    **bounds: Any,
) -> Any:
    """One setting. `also`: other names for it, of other gateways; `live`: a reload applies it.

    `bounds` are pydantic's (`ge`, `gt`, `le`); `secret` keeps it out of every printed form.
    """
    extra = {"metavar": metavar, "shape": shape, "also": list(also), "live": live}
    rest: dict[str, Any] = {
        "description": words, "json_schema_extra": extra, "repr": not secret, **bounds
    }  # fmt: skip
    if isinstance(default, dict):
        return Field(default_factory=dict, **rest)
    return Field(default=default, **rest)


def declared(field: FieldInfo, what: str) -> Any:
    """What `setting` was told about this field."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict), "declare it with `setting`"
    return extra[what]

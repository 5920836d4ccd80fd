"""The build backend that pip calls: hatchling, which is given a compiler of Python where it can use one.

A wheel is compiled (scripts/compiled_wheel.py) where C can be compiled; then, and only then, mypyc is among what
the build requires. Neither an editable install nor a source distribution requires it.
"""

import os
import sys
from typing import Any

import compiled_wheel

# pip's build would else have no metadata before the wheel: hatchling leaves this function out for build hooks
# that change the metadata. Ours does not, and compiling would pass for "Preparing metadata".
os.environ.pop("PIP_BUILD_TRACKER", None)

from hatchling import build  # noqa: E402

build_editable = build.build_editable
build_sdist = build.build_sdist
build_wheel = build.build_wheel
get_requires_for_build_editable = build.get_requires_for_build_editable
get_requires_for_build_sdist = build.get_requires_for_build_sdist
prepare_metadata_for_build_editable = build.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build.prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """The distributions to install before a wheel is built."""
    required = build.get_requires_for_build_wheel(config_settings)
    if (obstacle := compiled_wheel.obstacle()) is not None:
        print(f"fairlead: pure Python: {obstacle}", file=sys.stderr)
        return required
    return [*required, *compiled_wheel.REQUIRED]

"""The build backend that pip calls: hatchling, which requires mypyc too where a wheel will be compiled.

That is where C can be compiled (scripts/compiled_wheel.py), but neither for an editable install nor for a
source distribution.
"""

import os
from typing import Any

import compiled_wheel

# With this set hatchling gives no metadata before the wheel, for the sake of hooks that change the metadata.
# Ours does not; and pip would say "Preparing metadata" while it compiles.
os.environ.pop("PIP_BUILD_TRACKER", None)

from hatchling import build

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
    if compiled_wheel.obstacle() is not None:  # the hook says which
        return required
    return [*required, *compiled_wheel.REQUIRED]

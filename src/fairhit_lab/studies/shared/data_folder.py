"""The folder of workload data that studies of public traces read."""

import os
from collections.abc import Mapping
from pathlib import Path

from fairhit.errors import ConfigError

DATA_VARIABLE = "FAIRHIT_DATA"


def data_folder(
    given: str | None, needed: str, environment: Mapping[str, str] | None = None
) -> Path:
    """The folder of workload data: `given` (--data), else FAIRHIT_DATA. Raises ConfigError.

    `needed` is a file or folder that has to be in it.
    """
    environment = os.environ if environment is None else environment
    text = given or environment.get(DATA_VARIABLE)
    if not text:
        raise ConfigError(
            f"--data: needed, or {DATA_VARIABLE}: the folder of workload data that holds {needed}"
        )
    folder = Path(text)
    if not (folder / needed).exists():
        name = "--data" if given else DATA_VARIABLE
        raise ConfigError(f"{name}: {folder} has no {needed}")
    return folder

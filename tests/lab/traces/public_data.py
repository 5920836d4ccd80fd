"""The folder of the public data; tests that need it are skipped where it is missing, except in CI."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
DATA = Path(os.environ.get("FAIRHIT_DATA", BESIDE))
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the public data: set FAIRHIT_DATA")

"""The build backend of the laboratory: that of the checkout around it, which a build from this folder has."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from build_backend import *  # noqa: F403

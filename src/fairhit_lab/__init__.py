"""The laboratory: simulator, workloads, metrics and studies, for serving's own schedulers and routers."""

from pathlib import Path

from fairhit.built import require_same_build

require_same_build(Path(__file__).parent)

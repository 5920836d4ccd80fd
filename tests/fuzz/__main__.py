"""`python -m tests.fuzz TARGET [FOLDER] [-runs=N] [-max_total_time=S] ...`: libFuzzer's arguments.

What it finds on its way is kept in FOLDER, if one is given.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fairhit.gateway"]):
    from tests.fuzz.seeds import seeded
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz one target until it fails, or for as long as the arguments say."""
    name, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeded(name)):
            (Path(folder) / f"{number:04}").write_bytes(seed)
        folders = [one for one in arguments if not one.startswith("-")]
        for one in folders:
            Path(one).mkdir(parents=True, exist_ok=True)
        flags = [one for one in arguments if one.startswith("-")]
        atheris.Setup([sys.argv[0], *folders, folder, "-timeout=20", *flags], TARGETS[name])
        atheris.Fuzz()


main()

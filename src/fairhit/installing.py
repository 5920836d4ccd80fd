"""How a missing extra is installed: from the checkout that this installation was made from, never an index.

Nothing is released: an index may have somebody else's software by our name.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "fairhit"


def install_command(extra: str) -> str:
    """The command that installs an extra, by the path of the checkout where that is known."""
    checkout = checkout_of(DISTRIBUTION)
    if checkout is None:
        return f"in a checkout of {DISTRIBUTION}: pip install '.[{extra}]'"
    return f"pip install '{checkout}[{extra}]'"


def checkout_of(name: str) -> Path | None:
    """The folder that a distribution was installed from, if it was one and is still there."""
    try:
        text = distribution(name).read_text("direct_url.json")
        url = json.loads(text)["url"] if text else ""
    except (PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None
    parts = urlsplit(str(url))
    folder = Path(unquote(parts.path))
    is_checkout = parts.scheme == "file" and (folder / "pyproject.toml").is_file()
    return folder if is_checkout else None

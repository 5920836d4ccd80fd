"""Commands that install a missing extra from the checkout of this installation, never from an index.

Nothing is released: an index may have other software by our name.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "fairhit"
# The laboratory is a distribution of its own, in this folder of the checkout.
LAB = "lab"


def install_command(extra: str) -> str:
    """The command that installs an extra, or the laboratory (`lab`), by the path of the checkout if known."""
    checkout, flag = checkout_of(DISTRIBUTION)
    if checkout is None:
        wanted = f". ./{LAB}" if extra == LAB else f"'.[{extra}]'"
        return f"in a checkout of {DISTRIBUTION}: pip install {wanted}"
    if extra == LAB:  # two compiled packages are built together
        return f"pip install {flag}'{checkout}' {flag}'{checkout / LAB}'"
    return f"pip install {flag}'{checkout}[{extra}]'"


def checkout_of(name: str) -> tuple[Path | None, str]:
    """The folder that a distribution was installed from, if it is still there, and `-e ` if editable."""
    try:
        text = distribution(name).read_text("direct_url.json")
        origin = json.loads(text) if text else {}
        url, about = origin["url"], origin.get("dir_info", {})
    except (PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None, ""
    parts = urlsplit(str(url))
    folder = Path(unquote(parts.path))
    if parts.scheme != "file" or not (folder / "pyproject.toml").is_file():
        return None, ""
    return folder, "-e " if about.get("editable") else ""

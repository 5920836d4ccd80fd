"""A missing package is installed from our checkout: on an index our name may be somebody else's."""

import importlib.metadata
import json
from pathlib import Path

import pytest

from fairhit import installing


class Installed:
    """A distribution whose `direct_url.json` has a text, or that has none."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


def command(monkeypatch: pytest.MonkeyPatch, text: str | None) -> str:
    monkeypatch.setattr(installing, "distribution", lambda _: Installed(text))
    return installing.install_command("gateway")


@pytest.mark.parametrize(("info", "flag"), [({"editable": True}, "-e "), ({}, "")])
def test_the_checkout_is_named_by_its_path(
    info: dict[str, bool], flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    text = json.dumps({"url": checkout.as_uri(), "dir_info": info})

    assert command(monkeypatch, text) == f"pip install {flag}'{checkout}[gateway]'"
    lab = f"pip install {flag}'{checkout}' {flag}'{checkout}/lab'"
    assert installing.install_command("lab") == lab


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "not JSON",
        '{"url": "file:///no/such/folder", "dir_info": {}}',
        '{"url": "file:///some/fairhit-0.1.0-py3-none-any.whl", "archive_info": {}}',
        '{"url": "https://a.test/fairhit.git", "vcs_info": {}}',
    ],
)
def test_without_a_checkout_the_command_is_for_one(
    text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(monkeypatch, text) == "in a checkout of fairhit: pip install '.[gateway]'"


def test_run_from_its_sources_the_command_is_for_a_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installing, "distribution", absent)

    assert installing.install_command("lab") == "in a checkout of fairhit: pip install . ./lab"
    assert installing.install_command("redis") == "in a checkout of fairhit: pip install '.[redis]'"


def test_no_message_names_a_distribution_to_install() -> None:
    """The one function that names the command is the only place with its words."""
    sources = Path(installing.__file__).parent.parent
    told = [
        path.name
        for package in ("fairhit", "fairhit_lab")
        for path in (sources / package).rglob("*.py")
        if "pip install" in path.read_text()
    ]

    assert told == ["installing.py"]

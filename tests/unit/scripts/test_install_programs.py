"""nginx and systemd-analyze for the tests: fetched where that is possible, else said in one line."""

import pytest
from scripts import install_programs


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """What is run instead of running it; `download` says what each next one does."""
    ran, left = [], []

    def run(*command):
        ran.append(" ".join(word for word in command if word in {"update", "install", "-x"}))
        return left.pop(0) if left and ran[-1] == "install" else None

    monkeypatch.setattr(install_programs, "run", run)
    return ran, left


def program(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("")
    (folder / name).chmod(0o755)
    return folder / name


def test_what_is_unpacked_is_found_and_finds_its_libraries(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    mine = program(tmp_path / "usr/sbin", "a-program-of-this-test")
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)

    found = install_programs.find("a-program-of-this-test", tmp_path)

    assert found == str(mine)
    libraries = install_programs.environment(found, tmp_path)["LD_LIBRARY_PATH"]
    assert libraries.startswith(f"{tmp_path}/usr/lib/x86_64-linux-gnu:")
    assert install_programs.find("another-program", tmp_path) is None


def test_the_machines_own_runs_as_it_is(tmp_path, monkeypatch):
    mine = program(tmp_path / "own", "a-program-of-this-test")
    monkeypatch.setenv("PATH", str(mine.parent))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)

    found = install_programs.find("a-program-of-this-test", tmp_path / "unpacked")

    assert found == str(mine)
    environment = install_programs.environment(found, tmp_path / "unpacked")
    assert "LD_LIBRARY_PATH" not in environment


def test_lists_are_fetched_where_packages_are_not_known(commands, tmp_path):
    ran, left = commands
    left += ["E: no such package", None]

    assert install_programs.fetch(["nginx"], tmp_path / "debian") is None
    assert ran == ["install", "update", "install"]


def test_every_archive_is_unpacked(commands, tmp_path):
    archives = tmp_path / "debian-archives"
    archives.mkdir()
    for name in ("nginx.deb", "nginx-common.deb"):
        (archives / name).write_bytes(b"")

    assert install_programs.fetch(["nginx"], tmp_path / "debian") is None
    assert commands[0] == ["install", "-x", "-x"]


def test_what_could_not_be_fetched_is_said(commands, tmp_path, monkeypatch, capsys):
    commands[1].extend(["E: no such host"] * install_programs.TRIES)
    monkeypatch.setattr(install_programs, "missing", lambda: ["nginx"])
    monkeypatch.setattr(install_programs, "obstacle", lambda: None)
    monkeypatch.setattr(
        install_programs,
        "fetch",
        lambda packages, real=install_programs.fetch: real(packages, tmp_path / "d"),
    )

    assert install_programs.main() == 0
    assert "no nginx, their tests will be skipped: E: no such host" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("apt", "user", "reason"),
    [
        (None, 0, "there is no apt-get here"),
        ("/usr/bin/apt-get", 1000, "apt-get fetches packages for root only"),
        ("/usr/bin/apt-get", 0, None),
    ],
)
def test_what_is_in_the_way(monkeypatch, apt, user, reason):
    monkeypatch.setattr(install_programs.shutil, "which", lambda _: apt)
    monkeypatch.setattr(install_programs.os, "geteuid", lambda: user)

    assert install_programs.obstacle() == reason

"""Bad flags are exit status 2 and one clear line; nothing is started for them."""

import io
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fairhit import cli
from fairhit.cli import console, main
from fairhit.gateway.auth.keys import digest_of
from fairhit.installing import install_command
from fairhit.local import serve

ONE_ENGINE = ["--worker-urls", "http://127.0.0.1:1"]
FAIR = [*ONE_ENGINE, "--scheduler", "fair"]
BAD = [
    ([], "required: COMMAND"),
    (["serv"], "invalid choice: 'serv'"),
    (["serve", "--engines", "0"], "--engines: expected a whole number above 0, got '0'"),
    (["serve", "--engine", "tgi"], "--engine: invalid choice: 'tgi'"),
    (["serve", "--scheduler", "fifo"], "--scheduler: invalid choice: 'fifo'"),
    (["serve", "--quantum", "many"], "--quantum: expected a whole number above 0, got 'many'"),
    (["serve", "--router", "nearest"], "nearest"),
    (["serve", "--no-such-flag"], "unknown flag --no-such-flag"),
    (["serve", "--worker-urls", "http://127.0.0.1:1"], "serve starts its own engines"),
    (["serve", "--engine-args", "--flag 'open"], "--engine-args: no closing quotation"),
    (["serve", "--model", "./no/such/dir"], "--model ./no/such/dir: no such directory"),
    (["serve", "--scheduler", "fcfs", "--quantum", "9"], "--quantum: the scheduler fcfs has none"),
    (
        ["serve", "--scheduler", "fair", "--weights", "a=0"],
        "weight of client 'a': expected a positive number",
    ),
    (["serve", "--port", "99999"], "--port"),
    (["serve", "--tenant_api_key", "nocolon"], "expected TENANT:KEY"),
    (["gateway", "--policy", "nearest"], "nearest"),
    (["gateway", *FAIR, "--cost", "context:-1,0"], "--cost: cost 'context:-1,0': expected a price"),
    (["gateway", *FAIR, "--cost", "context:nan,0"], "expected a price from 0 to 1,000,000"),
    (["gateway", *FAIR, "--cost", "context:2,1e300"], "got '1e300'"),
    (["gateway", *FAIR, "--cost", "context:2,1e3000000"], "got '1e3000000'"),
    (["gateway", *FAIR, "--weights", "a=0"], "weight of client 'a': expected a positive number"),
    (["gateway", *FAIR, "--overdraft", "1025"], "overdraft: expected at most the quantum, 1024"),
    (
        ["gateway", *ONE_ENGINE, "--scheduler", "vtc", "--overdraft", "5"],
        "overdraft: the scheduler vtc has none; expected with fair",
    ),
    (["demo", "--seconds", "-1"], "--seconds: expected a whole number above 0, got '-1'"),
    (["demo", "--out", "no/such/dir/file"], "--out no/such/dir/file: No such file or directory"),
    (["demo", "--out", "."], "--out .: Is a directory"),
    (["demo", "--out", "/proc/version"], "--out /proc/version: "),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD)
def test_a_bad_command_is_one_line_and_status_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
):
    try:
        status: object = main(arguments)
    except SystemExit as exit_:
        status = exit_.code
    said = capsys.readouterr().err

    assert status == 2
    assert said.count("\n") == 1, said
    assert expected in said


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("COST", "context:-1,0", "FAIRHIT_COST: cost 'context:-1,0': expected a price from 0"),
        ("COST", "context:2,1e300", "got '1e300'"),
        ("OVERDRAFT", "1025", "overdraft: expected at most the quantum, 1024, got 1025"),
        ("EVICTION", "mru", "FAIRHIT_EVICTION: expected one of wanted-last, lru, got 'mru'"),
    ],
)
def test_what_the_engines_plug_in_would_refuse_is_found_before_the_engines_start(
    variable: str,
    value: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The engines take the variables of the plug-in from `serve`."""
    monkeypatch.setenv(f"FAIRHIT_{variable}", value)

    assert main(["serve", "--scheduler", "fair"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert expected in said


def test_a_port_in_use_is_found_before_the_engines_start(capsys: pytest.CaptureFixture[str]):
    """Half a minute of starting engines, and then a traceback: not here."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2

    assert (
        f"--port {port}: cannot listen on 127.0.0.1: Address already in use"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--engine-args", "--chat-template my_chat.jinja"], ("--chat-template", "my_chat.jinja")),
        (["--engine_args=--max_num_seqs 9"], ("--max_num_seqs", "9")),
        (["--engine-args", "--enforce_eager"], ("--enforce_eager",)),
        (["--engine_args", "--load-format=my_own", "--engines", "1"], ("--load-format=my_own",)),
    ],
)
def test_the_engines_flags_reach_it_as_they_were_typed(
    arguments: list[str], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """Underscores are accepted for dashes in our flags, and in nothing else."""
    asked: list[serve.ServeOptions] = []
    monkeypatch.setattr(console, "serve", lambda options: asked.append(options) or 0)

    assert main(["serve", *arguments]) == 0
    assert asked[0].engine_arguments == expected


def test_a_key_is_hashed_off_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO("my key\n".replace(" ", "-")))

    assert main(["gateway", "hash-key", "alice"]) == 0
    assert capsys.readouterr().out == f"alice:sha256:{digest_of(b'my-key').hex()}\n"


@pytest.mark.parametrize(("tenant", "key"), [("alice", ""), ("a:b", "k"), ("alice", "two words")])
def test_what_is_no_key_is_not_hashed(
    tenant: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO(key))

    assert main(["gateway", "hash-key", tenant]) == 2
    assert "hash-key: expected a" in capsys.readouterr().err


def test_underscores_in_a_value_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys = tmp_path / "my_keys"
    keys.write_text("a:key_of_a")
    asked: list[serve.ServeOptions] = []
    monkeypatch.setattr(console, "serve", lambda options: asked.append(options) or 0)

    assert main(["serve", f"--keys_file={keys}", "--tenant_api_key", "b_1:--key_of_b"]) == 0
    assert asked[0].gateway.keys() == {
        digest_of(b"key_of_a"): "a",
        digest_of(b"--key_of_b"): "b_1",
    }


def test_output_into_a_full_disk_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(options: serve.ServeOptions) -> int:
        with open("/dev/full", "w") as disk:
            disk.write("the table")
        return 0

    monkeypatch.setattr(console, "serve", full)

    assert main(["serve"]) == 1
    assert capsys.readouterr().err == "fairhit: error: No space left on device\n"


@pytest.mark.parametrize("command", [[], ["serve"], ["gateway"], ["demo"]])
def test_help_is_there_for_every_command(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])

    assert caught.value.code == 0
    assert "usage: fairhit" in capsys.readouterr().out


def test_who_only_simulates_needs_nothing_of_the_gateway(monkeypatch, capsys):
    """
    `pip install . ./lab` brings no uvloop, and the README says it is enough.
    """
    for name in [each for each in sys.modules if each.startswith("fairhit.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(
        "fairhit.gateway", raising=False
    )  # which puts the one with its modules back afterwards
    for name in ("httptools", "uvloop", "orjson", "prometheus_client"):
        monkeypatch.setitem(sys.modules, name, None)

    assert main(["trace", "generate", "list"]) == 0
    assert main(["gateway", "--worker-urls", "http://127.0.0.1:1"]) == 2
    assert f"needs uvloop: {install_command('gateway')}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "extra"), [(["experiment", "list"], "lab"), (["demo"], "gateway")]
)
def test_what_two_extras_bring_is_asked_for_by_the_command(command, extra, monkeypatch, capsys):
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "fairhit.cli.console")
    monkeypatch.delattr("fairhit.cli.console")  # or it would not be loaded again

    assert main(command) == 2
    assert f"needs rich: {install_command(extra)}" in capsys.readouterr().err


def test_engines_of_others_are_refused_wherever_serve_finds_them_named(tmp_path, capsys):
    settings = tmp_path / "gateway.yaml"
    settings.write_text("worker-urls: [http://127.0.0.1:1]")

    assert main(["serve", "--config", str(settings)]) == 2
    assert "serve starts its own engines" in capsys.readouterr().err


def test_the_help_of_serve_names_no_flag_that_it_refuses(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])

    said = capsys.readouterr().out
    assert "--worker-urls" not in said
    assert "--tenant-api-key" in said


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    said = f"fairhit {version('fairhit')} (pure Python: run from its sources)\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("command", ["simulate", "trace", "experiment"])
def test_without_the_laboratory_its_commands_are_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli, "find_spec", lambda _: None)

    assert main([command, "--help"]) == 2
    said = f"fairhit: error: {command}: needs the laboratory: {install_command('lab')}\n"
    assert capsys.readouterr().err == said
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "gateway" in shown and command not in shown


def test_the_overview_imports_no_command():
    """What is slow to import is imported by the command that needs it."""
    code = (
        "import sys, contextlib\nfrom fairhit import cli\n"
        "with contextlib.suppress(SystemExit):\n    cli.main(['--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('fairhit')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    loaded = set(done.stdout.splitlines()[-1].split())
    assert "fairhit_lab.cli" in loaded
    slow = (
        "fairhit.gateway",
        "fairhit.local",
        "fairhit.engines",
        "fairhit_lab.sim",
        "fairhit_lab.traces",
    )
    assert not [name for name in loaded if name.startswith(slow)]

"""Settings from flags, file and environment; what is wrong is one line."""

import argparse
from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.settings import GatewaySettings, add_arguments, from_arguments


def settings(*argv: str) -> GatewaySettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(argv))


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("port: 9000\nworker-quantum: 500\nweights: {gold: 2}\n")
    made = settings("--config", str(config), "--port", "9001", "--worker-urls", "http://e:1/")

    assert (made.port, made.worker_quantum, made.min_match) == (9001, 500, 64)
    assert made.worker_urls == ("http://e:1",)
    assert made.weights == {"gold": "2"}


def test_keys_come_from_flags_and_a_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# tenants\n\nbob:k2\n alice:k3\n")
    made = settings("--tenant-api-key", "alice:k1", "--keys-file", str(keys))

    assert made.keys() == {"k1": "alice", "k2": "bob", "k3": "alice"}


def test_the_engines_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_WORKER_API_KEY", "secret")

    assert settings().worker_api_key == "secret"
    assert "secret" not in repr(settings())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "x"], "--port: "),
        (["--port", "70000"], "--port: "),
        (["--worker-urls", "engine:8000"], "--worker-urls: expected http://HOST:PORT"),
        (["--worker-urls", "http://e:port"], "--worker-urls: "),
        (["--weights", "a=0"], "--weights: weight of client 'a': expected a positive number"),
        (["--weights", "a"], "--weights: expected CLIENT=WEIGHT"),
        (["--worker-quantum", "0"], "--worker-quantum: "),
        (["--request-timeout-secs", "nan"], "--request-timeout-secs: "),
        (["--config", "/nowhere/x.yaml"], "/nowhere/x.yaml: cannot be read"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(*argv)

    assert str(refused.value).startswith(message), refused.value
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1\nprot: 1", ", line 2: prot: no such setting"),
        ("- a\n- b", ": expected settings"),
        ("a: [1\nb: 2", ", line "),
        ("port: many", ", line 1: port: "),
        ("# x\n\nworker-quantum: 0", ", line 3: worker-quantum: "),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(text: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError) as refused:
        settings("--config", str(config))

    assert str(refused.value).startswith(f"{config}{message}"), refused.value


def test_two_tenants_cannot_share_a_key() -> None:
    with pytest.raises(ConfigError, match="already belongs") as refused:
        settings("--tenant-api-key", "a:same", "--tenant-api-key", "b:same").keys()
    assert "same" not in str(refused.value)

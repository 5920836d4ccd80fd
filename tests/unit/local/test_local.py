"""The command line of an engine, as the operator sees it in `ps`, without secrets."""

import json
from pathlib import Path

import pytest

from fairhit.errors import ConfigError
from fairhit.local import engine_process as local


@pytest.fixture
def model(tmp_path: Path) -> local.ServedModel:
    (tmp_path / "config.json").touch()
    return local.find_model(str(tmp_path))


def options(**changes: object) -> local.EngineOptions:
    return local.EngineOptions(**{"api_key": "s3cret-key", **changes})  # type: ignore[arg-type]


def flag(command: list[str], name: str) -> str:
    return command[len(command) - 1 - command[::-1].index(name) + 1]


def test_the_plug_in_is_told_its_policy(model: local.ServedModel):
    made = local.command(options(quantum=99, weights={"a": "2"}), model, number=1, port=5)

    assert json.loads(flag(made, "--additional-config")) == {
        "fairhit": {"scheduler": "dlpm", "quantum": 99, "weights": {"a": "2"}}
    }
    assert flag(made, "--scheduler-cls") == "fairhit.engines.vllm.FairScheduler"
    assert flag(made, "--fingerprint-value") == "engine-1"


def test_weights_stay_with_the_gateway_where_the_scheduler_has_none(model: local.ServedModel):
    made = local.command(options(scheduler="fcfs", weights={"a": "2"}), model, number=0, port=5)

    assert json.loads(flag(made, "--additional-config")) == {"fairhit": {"scheduler": "fcfs"}}


def test_the_operators_flags_come_last(model: local.ServedModel):
    """vLLM takes the last of two: the operator's word counts."""
    made = local.command(options(arguments=("--block-size", "64")), model, number=0, port=5)

    assert flag(made, "--block-size") == "64"


def test_no_secret_is_on_the_command_line(model: local.ServedModel, tmp_path: Path):
    """Every user of the machine can see it there."""
    made = local.command(options(), model, number=0, port=5)

    assert "s3cret-key" not in " ".join(made)
    assert local.environment(options(), model, tmp_path)["VLLM_API_KEY"] == "s3cret-key"


def test_a_directory_without_a_model_is_said_at_once(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        local.find_model(str(tmp_path))


def test_an_id_is_left_to_the_engine():
    assert local.find_model("org/model") == local.ServedModel(source="org/model", name="org/model")


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "runs_on_cpu", lambda: True)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4})

    assert [local.core_share(number, 2) for number in range(2)] == [[0, 2, 4], [1, 3]]
    assert [local.core_share(number, 7) for number in range(7)][5:] == [[0], [1]]


def test_ports_are_free_and_different():
    ports = local.free_ports(5)

    assert len(set(ports)) == 5
    assert all(port in local.PORTS for port in ports)


def test_nobody_answering_is_not_ready():
    (port,) = local.free_ports(1)

    assert not local.completes(port, "demo", "key")

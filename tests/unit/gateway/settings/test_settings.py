"""Settings from flags, file and environment; what is wrong is one line."""

import argparse
import json
from pathlib import Path

import pytest

from fairhit.core.service import Weights
from fairhit.errors import ConfigError
from fairhit.gateway.auth.keys import digest_of
from fairhit.gateway.factory import make_router
from fairhit.gateway.settings import (
    GatewaySettings,
    add_arguments,
    environment_without_settings,
    from_arguments,
)
from fairhit.gateway.settings import files as reading
from fairhit.routers import ROUTERS
from fairhit.settings.declaration import settings_of


def settings(*argv: str) -> GatewaySettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(argv))


def digests(keys: dict[str, str]) -> dict[bytes, str]:
    return {digest_of(key.encode()): client for key, client in keys.items()}


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

    assert made.keys() == digests({"k1": "alice", "k2": "bob", "k3": "alice"})


def test_keys_may_be_hashed_and_are_kept_hashed(tmp_path: Path) -> None:
    """Neither a file of keys nor a copy of the settings in memory or in a file tells a key."""
    keys = tmp_path / "keys"
    keys.write_text(f"bob:sha256:{digest_of(b'hush2').hex()}\n")
    made = settings("--tenant-api-key", "alice:hush1", "--keys-file", str(keys))

    assert made.keys() == digests({"hush1": "alice", "hush2": "bob"})
    again = GatewaySettings(**made.as_json())
    assert again.keys() == made.keys()
    assert "hush" not in repr(made) + json.dumps(made.as_json()) + str(vars(made))


def test_the_engines_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRHIT_WORKER_API_KEY", "secret")

    assert settings().worker_api_key == "secret"
    assert "hush" not in repr(settings())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "x"], "--port: "),
        (["--port", "70000"], "--port: "),
        (["--worker-urls", "engine:8000"], "--worker-urls: expected http://HOST:PORT"),
        (["--worker-urls", "http://engine:0"], "--worker-urls: expected a port above 0"),
        (
            ["--worker-urls", "http://eng\x01ine:1"],
            "--worker-urls: expected http://HOST:PORT without",
        ),
        (["--worker-urls", "http://e:port"], "--worker-urls: "),
        (["--weights", "a=0"], "--weights: weight of client 'a': expected a positive number"),
        (["--weights", "a"], "--weights: expected CLIENT=WEIGHT"),
        (["--worker-quantum", "0"], "--worker-quantum: "),
        (["--cost", "context:-1,0"], "--cost: cost 'context:-1,0': expected a price from 0"),
        (["--cost", "engines"], "--cost: expected linear:INPUT,OUTPUT | "),
        (["--overdraft", "-1"], "--overdraft: expected a whole number from 0"),
        (["--near", "0"], "--near: expected a whole number above 0"),
        (["--request-timeout-secs", "nan"], "--request-timeout-secs: "),
        (["--config", "/nowhere/x.yaml"], "/nowhere/x.yaml: cannot be read"),
        (["--config", "/dev/zero"], "/dev/zero: expected at most 67,108,864 bytes"),
        (["--config", ""], "--config: expected a file"),
        (["--host", ""], "--host: expected a value, got an empty one"),
        (["--isolation-secret", ""], "--isolation-secret: expected a value, got an empty one"),
        (["--access-log", " "], "--access-log: expected a value, got an empty one"),
        (["--share-key", ""], "--share-key: expected a value, got an empty one"),
        (["--tenant-header-name", "a b"], "--tenant-header-name: expected the name of a header"),
        (["--request-id-headers", "a:b"], "--request-id-headers: expected the name of a header"),
        (["--cors-allowed-origins", "*", "a.test"], "--cors-allowed-origins: expected * or https:"),
        (["--cors-allowed-origins", "http://a/b"], "--cors-allowed-origins: expected * or https:"),
        (["--otlp-traces-endpoint", "http://"], "--otlp-traces-endpoint: expected http://HOST"),
        (["--otlp-traces-endpoint", "http://a:b"], "--otlp-traces-endpoint: expected http://HOST"),
        (["--weights", "a=1,b=1,a=2"], "--weights: client 'a' is there twice"),
        (["--kv-events-endpoint", "http://a:1=tcp://b:65536"], "--kv-events-endpoint: expected"),
        (
            ["--processes", "100000"],
            "--processes: expected a whole number from 1 to 256, got '100000'",
        ),
        (["--max-concurrent-requests", "0"], "--max-concurrent-requests: expected a number above"),
        (["--max-concurrent-requests", "-2"], "--max-concurrent-requests: expected a number abov"),
        (
            ["--load-interval-secs", "1e-300"],
            "--load-interval-secs: expected a number from 0.01, got",
        ),
        (
            ["--client-timeout-secs", "1e-9"],
            "--client-timeout-secs: expected a number from 0.01, got",
        ),
        (
            ["--health-check-interval-secs", "0"],
            "--health-check-interval-secs: expected a number from 0.01",
        ),
        (["--share-url", "foo"], "--share-url: expected redis://HOST:PORT"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(*argv)

    assert str(refused.value).startswith(message), refused.value
    assert "\n" not in str(refused.value)


# Nine lists of nine names of the list before.
BILLION = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


def test_there_may_be_more_clients_than_names_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 50,001 that takes seconds, so the limit is lower here."""
    monkeypatch.setattr(reading, "_MOST_REPEATED", 20)
    config = tmp_path / "gateway.yaml"
    clients = {f"client-{number}": str(number + 1) for number in range(500)}
    weights = "".join(f"  {client}: {weight}\n" for client, weight in clients.items())
    config.write_text(f"worker-urls: &urls [http://a:1]\nweights:\n{weights}")
    assert settings("--config", str(config)).weights == clients

    config.write_text(f"weights: &all\n{weights}again: *all\n")
    with pytest.raises(ConfigError, match="at most 20 names and values by aliases"):
        settings("--config", str(config))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1\nprot: 1", ", line 2: prot: no such setting"),
        ("- a\n- b", ": expected settings"),
        ("a: [1\nb: 2", ", line "),
        ("port: many", ", line 1: port: "),
        ("# x\n\nworker-quantum: 0", ", line 3: worker-quantum: "),
        ("port: 1\nhost: a\nport: 2", ", line 3: port: is there twice"),
        (
            "max-client-requests: 1\nmax_client_requests: 2",
            ", line 2: max_client_requests: is there tw",
        ),
        ("port: yes", ", line 1: port: expected a whole number from 0 to 65,535, got True"),
        ("worker-urls: 5", ", line 1: worker-urls: expected a list"),
        ("keys-file: 5", ", line 1: keys-file: expected a path"),
        ("disable-retries: 5", ", line 1: disable-retries: "),
        ("~: 2", ": expected names of settings, got None"),
        ("worker-urls: &a [*a]", ": expected at most 100,000 names and values by aliases"),
        (BILLION, ": expected at most 100,000 names and values by aliases"),
        ("worker-urls: " + "[" * 5000, ": lists or mappings too deep in each other"),
        ("a\0b: 1", ": not valid YAML"),
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


def test_the_environment_wins_over_the_file_and_flags_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("port: 9000\nmin_match: 7\nworker-quantum: 500\n")
    monkeypatch.setenv("FAIRHIT_GATEWAY_CONFIG", str(config))
    monkeypatch.setenv("FAIRHIT_GATEWAY_MIN_MATCH", "8")
    monkeypatch.setenv("FAIRHIT_GATEWAY_WORKER_QUANTUM", "501")
    monkeypatch.setenv("FAIRHIT_GATEWAY_WORKER_URLS", "http://a:1, http://b:2")
    monkeypatch.setenv("FAIRHIT_GATEWAY_TENANT_API_KEY", "a:k,1 b:k2")
    monkeypatch.setenv("FAIRHIT_GATEWAY_IDENTIFY_BY_USER", "true")
    made = settings("--worker-quantum", "502")

    assert (made.port, made.min_match, made.worker_quantum) == (9000, 8, 502)
    assert made.worker_urls == ("http://a:1", "http://b:2")
    assert made.keys() == digests({"k,1": "a", "k2": "b"})
    assert made.identify_by_user
    assert not settings("--identify-by-user", "false").identify_by_user


def test_every_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value for each in turn, mostly a wrong one: none is skipped."""
    for name in settings_of(GatewaySettings):
        variable = f"FAIRHIT_GATEWAY_{name.upper()}"
        monkeypatch.setenv(variable, "=? =?")
        try:
            assert getattr(settings(), name)
        except ConfigError as error:
            assert variable in str(error) or name.replace("_", "-") in str(error)  # noqa: PT017
        monkeypatch.delenv(variable)


def test_what_kubernetes_says_about_a_service_of_our_name_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRHIT_GATEWAY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("FAIRHIT_GATEWAY_SERVICE_PORT", "8000")
    monkeypatch.setenv("FAIRHIT_GATEWAY_PORT", "tcp://10.0.0.1:8000")
    monkeypatch.setenv("FAIRHIT_GATEWAY_PORT_8000_TCP_ADDR", "10.0.0.1")

    assert settings().port == 8000


def test_names_of_other_gateways_are_understood(tmp_path: Path) -> None:
    config = tmp_path / "dynamic.yaml"
    config.write_text("static_backends: http://a:1,http://b:2\nrouting-logic: roundrobin\n")
    made = settings("--dynamic-config-yaml", str(config), "--api-key", "k")

    assert made.worker_urls == ("http://a:1", "http://b:2")
    assert (made.policy, made.worker_api_key) == ("round-robin", "k")
    assert settings("--policy", "round_robin").policy == "round-robin"


def test_one_setting_under_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="--static-backends: the same setting as --worker-urls"):
        settings("--worker-urls", "http://a:1", "--static-backends", "http://b:1")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        # sglang-router, smg
        ("cache_aware", "d2lpm"), ("prefix_hash", "d2lpm"), ("random", "round-robin"),
        ("least_load", "least-loaded"), ("manual", "sticky"), ("consistent_hashing", "sticky"),
        # vllm-router
        ("kv_aware", "d2lpm"), ("consistent_hash", "sticky"), ("rendezvous_hash", "sticky"),
        # production-stack, AIBrix, Dynamo, LiteLLM
        ("prefixaware", "d2lpm"), ("kvaware", "d2lpm"), ("session", "sticky"),
        ("prefix-cache", "d2lpm"), ("least-request", "least-loaded"), ("session-affinity", "sticky"),
        ("kv", "d2lpm"), ("simple-shuffle", "round-robin"), ("least-busy", "least-loaded"),
    ],
)  # fmt: skip
def test_another_gateways_policy_is_ours_of_the_same_purpose(theirs: str, ours: str) -> None:
    made = settings("--policy", theirs)

    assert made.router() == ours
    assert make_router(made, Weights()).__class__ is ROUTERS[ours]
    name = theirs.replace("_", "-")
    assert made.renamed() == f"--policy {name}: another gateway's name; the router is {ours}"


@pytest.mark.parametrize("name", ["d2lpm", "round_robin", "roundrobin", "power_of_two", "sticky"])
def test_a_name_of_ours_is_not_remarked_upon(name: str) -> None:
    made = settings("--policy", name)

    assert made.renamed() is None
    assert make_router(made, Weights()).__class__ is ROUTERS[made.router()]


@pytest.mark.parametrize(
    "name", ["bucket", "passthrough", "latency-based-routing", "disaggregated"]
)
def test_a_policy_without_an_equivalent_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--policy: expected one of d2lpm, round-robin, .*manual"
    ):
        settings("--policy", name)


def test_a_policy_misspelt_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean cache-aware\?"):
        settings("--policy", "cache_awre")


def test_a_key_for_the_engines_is_not_taken_for_one_that_callers_need() -> None:
    """sglang-router asks callers for its --api-key; here it is shown to the engines."""
    assert "callers need no key" in "".join(settings("--api-key", "k").remarks())
    assert not settings("--api-key", "k", "--tenant-api-key", "a:b").remarks()
    assert not settings().remarks()


@pytest.mark.parametrize("name", ["authorization", "content-length", "Connection"])
def test_a_routing_key_is_in_a_header_that_says_nothing_else(name: str) -> None:
    with pytest.raises(ConfigError, match="--routing-key-header: expected a header that says"):
        settings("--policy", "sticky", "--routing-key-header", name)


def test_an_unknown_name_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("worker-url: http://a:1\n")
    with pytest.raises(ConfigError, match=r"line 1: worker-url: no such setting; did you mean wor"):
        settings("--config", str(config))

    monkeypatch.setenv("FAIRHIT_GATEWAY_MIN_MACH", "1")
    with pytest.raises(ConfigError, match=r"^FAIRHIT_GATEWAY_MIN_MACH: .* mean min-match\?$"):
        settings()


def test_a_child_gets_its_settings_in_a_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` has read the variables; for its gateway they would win over what serve chose."""
    monkeypatch.setenv("FAIRHIT_GATEWAY_PORT", "9000")
    monkeypatch.setenv("FAIRHIT_OTHER", "kept")
    left = environment_without_settings()

    assert "FAIRHIT_GATEWAY_PORT" not in left
    assert left["FAIRHIT_OTHER"] == "kept"


@pytest.mark.parametrize(
    ("first", "more", "fault"),
    [
        (65534, ("--processes", "3"), "at most 65533 with 3 processes"),
        (7998, ("--processes", "3"), "other ports than the callers', 8000"),
        (8000, (), "other ports than the callers', 8000"),
    ],
)
def test_each_process_has_a_port_for_metrics(first: int, more: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^settings: prometheus-port: expected {fault}$"):
        settings("--prometheus-port", str(first), *more)
    assert settings("--prometheus-port", str(first - 1), *more).prometheus_port == first - 1
    assert settings("--prometheus-port", "0", *more).prometheus_port == 0


def test_settings_that_do_nothing_by_themselves_are_named() -> None:
    idle = {"isolation_secret": "s", "trace_ratio": 0.5, "prometheus_host": "::1"}
    queue = {"queue": "engine", "queue_size": 9, "queue_timeout_secs": 9}

    lines = GatewaySettings(**idle, **queue).without_effect()
    assert [line.split()[0] for line in lines] == [
        "--isolation-secret", "--trace-ratio", "--prometheus-host", "--queue-size", "--queue-timeout-secs",
    ]  # fmt: skip
    assert lines[1] == "--trace-ratio has no effect without --otlp-traces-endpoint"

    routing = {
        "worker_quantum": 7,
        "worker_overdraft": 7,
        "min_match": 7,
        "worker_charge": "input",
        "routing_key_header": "x-a",
    }
    for policy, count in (("d2lpm", 1), ("cache_aware", 1), ("manual", 4), ("round-robin", 5)):
        routed = GatewaySettings(**routing, policy=policy)
        assert len(routed.without_effect()) == count, policy

    needed = {"isolate_prefixes": True, "otlp_traces_endpoint": "http://a", "prometheus_port": 1}
    events = {"kv_events_replay_port": 1, "kv_events_topic": "x", "kv_events_max_blocks": 7}
    assert len(GatewaySettings(**events).without_effect()) == 3
    needed |= {**events, "kv_events_port": 2}
    effective = GatewaySettings(**{**idle, **needed, **queue, "queue": "gateway"})
    assert effective.without_effect() == GatewaySettings().without_effect() == []


@pytest.mark.parametrize("scheduler", ["dlpm", "fair"])
def test_policies_that_share_a_ledger_give_no_warning(scheduler: str) -> None:
    shared = GatewaySettings(scheduler=scheduler, processes=2, share_url="redis://a:1")

    assert shared.without_effect() == []


def test_processes_that_share_no_ledger_give_a_warning() -> None:
    """Weights would hold in each process alone, and four to one become one to one."""
    assert GatewaySettings(scheduler="vtc", processes=4).without_effect() == [
        (
            "--processes 4: under --scheduler vtc each process is fair among its own callers only; "
            "dlpm and fair share one ledger"
        )
    ]
    in_engines = GatewaySettings(scheduler="vtc", processes=4, queue="engine").without_effect()
    assert not any("--processes" in line for line in in_engines)
    assert GatewaySettings(scheduler="vtc", share_url="redis://a:1").without_effect() == [
        "--share-url has no effect without --scheduler dlpm or fair here"
    ]

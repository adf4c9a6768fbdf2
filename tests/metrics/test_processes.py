"""Real processes, scraped: what they show is what happened, they know when they are not ready, and they keep secrets."""

import base64
import json
import os
import re
import signal
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from bucketd.client import Client, at
from bucketd.embedded import Server
from bucketd.store.clock import utc
from bucketd.store.keyring import new_key
from bucketd.store.metrics import OF_RUNNER, OF_SCHEDULER, Definition
from tests.support.cluster import Cluster
from tests.support.processes import Process
from tests.support.target import Reply
from tests.support.waiting import wait_until

WATCHED = {"BUCKETD_METRICS_LISTEN": "127.0.0.1:0", "BUCKETD_LOG_FORMAT": "json"}
START_S = 20.0
# Of the data path's counters none is missing; these have labels that nobody knows before, or are not there without a cause.
SOMETIMES = {"bucketd_store_failures_total", "bucketd_breaker_openings"}
PLANTED = "pl4nt3d"
Shown = dict[tuple[str, tuple[str, ...]], float]


async def address_of(process: Process) -> str:
    """Where a process serves; it says so in its log."""
    await process.wait_output("metrics_listening", START_S)
    lines = (json.loads(line) for line in process.output().splitlines() if line.startswith("{"))
    return f"http://{next(line['address'] for line in lines if line['event'] == 'metrics_listening')}"


def told(url: str) -> str:
    """The body of an answer."""
    return httpx.get(url, timeout=10).text


def scraped(url: str) -> Shown:
    """Samples by name and values of labels."""
    families = text_string_to_metric_families(told(f"{url}/metrics"))
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def checks(url: str) -> dict[str, bool]:
    """What /readyz looks at."""
    found: dict[str, bool] = json.loads(told(f"{url}/readyz"))["checks"]
    return found


async def until_shown(url: str, name: str) -> None:
    """Until there is a sample of that name."""
    await wait_until(lambda: name in {shown for shown, _ in scraped(url)}, START_S, name)


async def until_ready(url: str, wanted: bool) -> None:
    """Until /readyz says so."""
    await wait_until(lambda: is_ready(url) is wanted, START_S, f"/readyz to say {wanted}")


def names(found: Shown, definitions: tuple[Definition, ...]) -> set[str]:
    """Names of metrics that are shown, histograms by their own; none is undefined."""
    kinds = {one.name: one.kind for one in definitions}
    shown = {name for name, _ in found if not name.startswith("process_")}
    bare = {re.sub("_(bucket|sum|count)$", "", name) if name not in kinds else name for name in shown}
    assert bare <= set(kinds)
    return bare


def is_ready(url: str) -> bool:
    """What a probe would take from /readyz; /healthz has to answer whatever it says."""
    assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
    answer = httpx.get(f"{url}/readyz", timeout=10)
    assert (answer.status_code == 200) == answer.json()["ready"]
    return bool(answer.json()["ready"])


async def test_what_happened_is_shown_and_secrets_are_not(cluster: Cluster) -> None:
    key = new_key()
    secret = f"whsec_{base64.b64encode((PLANTED + 's').encode().ljust(32, b's')).decode()}"
    with Client(settings=cluster.settings.model_copy(update={"secret_keys": SecretStr(key)})) as client:
        cluster.target.script = lambda request: Reply(422, raw=b"no") if "refuses" in request.path else Reply()
        for name, path in (("takes", "/takes"), ("refuses", "/refuses")):
            url = f"{cluster.target.url.rstrip('/')}{path}?token={PLANTED}query"
            client.targets.put(name, url, headers={"x-key": f"{PLANTED}header"})
            client.targets.rotate_secret(name, secret)
        env = {**WATCHED, "BUCKETD_SECRET_KEYS": key}
        await cluster.start(nodes=1, runners=1, env=env)
        urls = [await address_of(process) for process in (*cluster.nodes, *cluster.runners)]
        due = utc(int(cluster.now()) + 3)
        payload = {"password": f"{PLANTED}payload"}
        for number in range(20):
            client.schedules.put(f"s{number}", at(due), target="takes", tenant="acme", payload=payload)
        client.schedules.put("dies", at(due), target="refuses", tenant="acme", payload=payload)
    ended = "select count(*) from bucketd.runs where finished_at is not null"
    await wait_until(lambda: cluster.one(ended) == 21, 30, "21 runs to end")
    await until_shown(urls[0], "bucketd_queue_fires")  # the survey follows the take-over
    node, runner = (scraped(url) for url in urls)
    assert names(node, OF_SCHEDULER) >= {one.name for one in OF_SCHEDULER} - SOMETIMES
    assert names(runner, OF_RUNNER) >= {one.name for one in OF_RUNNER} - SOMETIMES
    assert node["bucketd_fires_planned_total", ()] >= 21
    assert node["bucketd_fires_drained_total", ()] >= 21
    assert node["bucketd_partitions_owned", ()] == 256
    assert node["bucketd_partition_changes_total", ("taken",)] == 256
    assert node["bucketd_ring_nodes", ()] == 1
    assert 0 < node["bucketd_planned_ahead_seconds", ()] <= 180
    assert 0 <= node["bucketd_feed_lag_seconds", ()] < 30
    assert 0 <= node["bucketd_settled_lag_seconds", ()] < 300
    assert node["bucketd_duty_duration_seconds_count", ("drain",)] > 0
    assert node["bucketd_ready", ()] == runner["bucketd_ready", ()] == 1
    assert runner["bucketd_confirms_total", ("confirmed",)] == 21
    assert runner["bucketd_attempts_total", ("succeeded",)] == 20
    assert runner["bucketd_attempts_total", ("failed",)] == runner["bucketd_runs_died_total", ()] == 1
    assert runner["bucketd_lateness_seconds_count", ("fire",)] == 21
    assert 0 < runner["bucketd_lateness_seconds_sum", ("fire",)] < 21 * 20
    assert runner["bucketd_call_duration_seconds_count", ()] == 21
    assert runner["bucketd_batch_duration_seconds_count", ("confirm",)] > 0
    assert runner["bucketd_runner_alive", ()] == 1
    assert runner["bucketd_calls_in_flight", ()] == 0
    said = [told(f"{url}{path}") for url in urls for path in ("/metrics", "/readyz", "/healthz")]
    said += [process.output() for process in (*cluster.nodes, *cluster.runners)]
    password = urlsplit(cluster.dsn).password
    assert password
    for planted in (PLANTED, base64.b64encode(PLANTED.encode()).decode()[:8], key, secret, password):
        assert not [text for text in said if planted in text], planted
    for process in (*cluster.nodes, *cluster.runners):
        lines = process.output().splitlines()
        assert lines
        assert all(isinstance(json.loads(line)["event"], str) for line in lines)


@pytest.mark.long
async def test_a_store_that_is_away_shows_in_ready_and_in_nothing_that_would_restart_it(
    cluster: Cluster, own_redis: Server
) -> None:
    # The lease of a runner is longer than all time-outs of Redis together: it does not hang on it.
    await cluster.start(nodes=1, runners=1, env={**WATCHED, "BUCKETD_RUNNER_DEAD_AFTER_S": "30"})
    node, runner = [await address_of(process) for process in (*cluster.nodes, *cluster.runners)]
    for url in (node, runner):
        await until_ready(url, True)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        for url in (node, runner):
            await until_ready(url, False)
            await until_shown(url, "bucketd_store_failures_total")
        await wait_until(lambda: not checks(node)["stores"], START_S, "the node to miss its stores")
        assert checks(runner) == {"postgres": True, "redis": False, "alive": True, "works": True}
        assert scraped(runner)["bucketd_runner_alive", ()] == 1
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    for url in (node, runner):
        await until_ready(url, True)
    for process in (*cluster.nodes, *cluster.runners):
        process.terminate()
        assert await process.wait_exit(30) == 0

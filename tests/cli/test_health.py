"""`bucketd health` asks the process of this machine."""

import pytest

from tests.cli.conftest import Cli
from tests.support.processes import Processes
from tests.support.target import Reply, Target
from tests.support.waiting import wait_until


def test_nobody_to_ask(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for listen in ("", ":0"):
        monkeypatch.setenv("BUCKETD_METRICS_LISTEN", listen)
        result = bare("health")
        assert result.code == 2
        assert "BUCKETD_METRICS_LISTEN" in result.err


def test_nobody_answers(bare: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_METRICS_LISTEN", "127.0.0.1:1")
    result = bare("health", "--json")
    assert result.code == 1
    assert result.json["healthy"] is False
    assert "127.0.0.1:1" in result.json["answer"]


def test_it_says_no(bare: Cli, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETD_METRICS_LISTEN", f"127.0.0.1:{target.port}")
    target.replies.append(Reply(503, {"ready": False, "checks": {"stores": False}}))
    result = bare("health", "--ready", "--json")
    assert result.code == 1
    assert result.json["healthy"] is False
    assert "stores" in result.json["answer"]
    assert [(request.method, request.path) for request in target.requests] == [("GET", "/readyz")]


async def test_a_node_answers(cli: Cli, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who listens everywhere is asked by the loopback; a node that stands still says nothing."""
    node = processes.start("scheduler", env={"BUCKETD_METRICS_LISTEN": ":0"})
    await node.wait_output("metrics_listening", 20)
    port = node.output().partition("metrics_listening address=")[2].split()[0].rpartition(":")[2]
    monkeypatch.setenv("BUCKETD_METRICS_LISTEN", f":{port}")
    assert cli.done("health").out.strip() == "ok"
    await wait_until(lambda: cli("health", "--ready").code == 0, 20, "the node to be ready")
    assert "leases" in cli.done("health", "--ready").out
    node.stop_signal()
    assert cli("health").code == 1

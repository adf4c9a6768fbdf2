"""`bucketd apply` and `bucketd export`: good, bad and mixed files, pruning, the round trip, and the real file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "k8s-periodics.jsonl"
GOOD: list[dict[str, Any]] = [
    {"name": "a", "cron": "*/5 * * * *", "tz": "Europe/Berlin", "payload": {"k": [1, None, "ü"]}, "labels": {"x": "y"}},
    {"name": "b", "every": "4h30m", "timeout": "90s", "overlap": "allow", "misfire": "skip", "misfire_threshold": "2m"},
    {"name": "c", "at": "2099-01-01T00:00:00Z", "tenant": "acme", "deadline": "1h", "paused": True},
    {
        "name": "d",
        "every": 90,
        "phase": "30s",
        "jitter": "10s",
        "starts_at": "2026-01-01T00:00:00Z",
        "ends_at": "2099-01-01",
    },
    {"name": "e", "cron": "30 2 * * *", "tz": "America/New_York", "gap": "shift", "fold": "both", "target": "other"},
]


def jsonl(*lines: Any) -> str:
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


@pytest.fixture
def hooked(cli: Cli) -> Cli:
    """With targets `hook` and `other`."""
    for name in ("hook", "other"):
        cli.done("target", "put", name, "http://127.0.0.1:9/")
    return cli


def exported(cli: Cli) -> list[Any]:
    return cli.done("export").lines


def test_good_file_twice(hooked: Cli) -> None:
    text = jsonl(*GOOD[:2], "", *GOOD[2:])
    first = hooked.done("apply", "-", "--target", "hook", stdin=text)
    assert first.out == "created 5, updated 0, unchanged 0, pruned 0, invalid 0\n"
    assert hooked.done("apply", "-", "--target", "hook", stdin=text).out.startswith("created 0, updated 0, unchanged 5")
    changed = jsonl({**GOOD[0], "payload": 1})
    assert hooked.done("apply", "-", "--target", "hook", stdin=changed).out.startswith(
        "created 0, updated 1, unchanged 0"
    )


def test_round_trip(hooked: Cli) -> None:
    hooked.done("apply", "-", "--target", "hook", stdin=jsonl(*GOOD))
    lines = {line["name"]: line for line in exported(hooked)}
    assert lines["a"] == {**GOOD[0], "target": "hook"}
    assert lines["b"] == {**GOOD[1], "target": "hook", "misfire_threshold": "120s"}
    assert lines["c"] == {**GOOD[2], "target": "hook", "deadline": "3600s"}
    assert lines["d"] == {**GOOD[3], "target": "hook", "every": "90s", "ends_at": "2099-01-01T00:00:00Z"}
    assert lines["e"] == GOOD[4]
    result = hooked.done("apply", "-", "--prune", stdin=hooked.done("export").out)
    assert result.out == "created 0, updated 0, unchanged 5, pruned 0, invalid 0\n"
    hooked.done("export", "out.jsonl", "--tenant", "acme")
    assert [json.loads(line)["name"] for line in Path("out.jsonl").read_text().splitlines()] == ["c"]


BAD: list[tuple[Any, str]] = [
    ("{", "expected one JSON object a line"),
    ("[1]", "expected a JSON object, got list"),
    ({"name": "x", "every": "1h", "cront": 1, "url": 2}, "unknown field 'cront', 'url'; known: name, cron, every"),
    ({"every": "1h"}, "name: expected a text"),
    ({"name": 7, "every": "1h"}, "name: expected a text, got 7"),
    ({"name": "x"}, "expected exactly one of cron, every and at, got none"),
    ({"name": "x", "every": "1h", "at": "now"}, "got every and at"),
    ({"name": "x", "every": "1 hour"}, "expected a duration"),
    ({"name": "x", "every": True}, "every: expected"),
    ({"name": "x", "every": "0s"}, "expected a duration"),
    ({"name": "x", "cron": "* * * *"}, "field_count"),
    ({"name": "x", "cron": "0 0 30 2 *"}, "never_fires"),
    ({"name": "x", "cron": "0 0 * * *", "tz": "Mars/Olympus"}, "unknown_time_zone"),
    ({"name": "x", "every": "1h", "timeout": "soon"}, "timeout: expected a duration"),
    ({"name": "x", "every": "1h", "timeout": "25h"}, "86400"),
    ({"name": "x", "every": "1h", "overlap": "never"}, "overlap"),
    ({"name": "x", "every": "1h", "labels": {"a": 1}}, "labels: expected a text for 'a', got 1"),
    ({"name": "x", "every": "1h", "labels": []}, "labels: expected an object"),
    ({"name": "x", "every": "1h", "paused": "yes"}, "paused: expected true or false"),
    ({"name": "x", "every": "1h", "target": "nobody"}, "'nobody'"),
    ({"name": "x", "every": "1h", "payload": "y" * 66_000}, "65,536"),
    ({"name": "x\0", "every": "1h"}, "control"),
    ({"name": "x" * 256, "every": "1h"}, "255"),
    ({"name": "x", "at": "2020-01-01"}, "future"),
    ({"name": "x", "at": "yesterday"}, "at: expected an instant"),
    ('{"name": "x", "every": "1h", "every": "2h"}', "every: stands twice"),
    ('{"name": "x", "every": "1h", "payload": NaN}', "got NaN"),
    ({"name": "a", "every": "1h"}, "stands on line 1 already"),
]


def test_each_bad_line_is_named_and_nothing_changes(hooked: Cli) -> None:
    """One database for all: cloning one takes longer than the command."""
    for line, reason in BAD:
        result = hooked("apply", "-", "--target", "hook", stdin=jsonl(GOOD[0], line, GOOD[1]))
        assert result.code == 2, line
        named = [text for text in result.err.splitlines() if text.startswith("line 2: ")]
        assert len(named) == 1, result.err
        assert reason in named[0]
        assert "nothing was changed" in result.err
    assert exported(hooked) == []


def test_mixed_file_with_skip_invalid(hooked: Cli) -> None:
    text = jsonl(GOOD[0], {"name": "bad", "cron": "0 0 31 2 *"}, GOOD[1], "{")
    result = hooked.done("apply", "-", "--target", "hook", "--skip-invalid", stdin=text)
    assert result.out == "created 2, updated 0, unchanged 0, pruned 0, invalid 2\n"
    assert result.err.startswith("line 2: bad: never_fires: ")
    assert "line 4: (no name): expected one JSON object a line" in result.err
    assert [line["name"] for line in exported(hooked)] == ["a", "b"]


def test_other_refusals_and_a_dry_run(hooked: Cli) -> None:
    Path("latin.jsonl").write_bytes(b'{"name": "\xfc", "every": "1h"}\n')
    assert "line 1: (no name): expected UTF-8" in hooked("apply", "latin.jsonl", "--target", "hook").err
    result = hooked("apply", "-", "--target", "hook", "--json", stdin=jsonl(GOOD[0], {"name": "bad"}))
    assert result.code == 2
    assert result.json["applied"] is False
    assert (result.json["created"], result.json["invalid"]) == (0, 1)
    assert result.json["problems"][0] | {"reason": ""} == {"line": 2, "tenant": "default", "name": "bad", "reason": ""}
    assert "target: expected the name of a target here or in --target" in hooked("apply", "-", stdin=jsonl(GOOD[0])).err
    missing = hooked("apply", "missing.jsonl")
    assert missing.code == 2
    assert "No such file" in missing.err
    dry = hooked.done("apply", "-", "--target", "hook", "--dry-run", "--json", stdin=jsonl(*GOOD))
    assert (dry.json["created"], dry.json["applied"]) == (5, False)
    assert exported(hooked) == []


def test_prune_stays_within_the_tenants_of_the_file(hooked: Cli) -> None:
    hooked.done("apply", "-", "--target", "hook", stdin=jsonl(*GOOD))
    kept = jsonl(GOOD[0], {"name": "b", "cron": "bad"})
    refused = hooked("apply", "-", "--target", "hook", "--prune", stdin=kept)
    assert refused.code == 2
    assert len(exported(hooked)) == 5
    dry = hooked.done("apply", "-", "--target", "hook", "--prune", "--skip-invalid", "--dry-run", stdin=kept)
    assert dry.out == "created 0, updated 0, unchanged 1, pruned 2, invalid 1 (dry run: nothing was changed)\n"
    assert len(exported(hooked)) == 5
    hooked.done("apply", "-", "--target", "hook", "--prune", "--skip-invalid", stdin=kept)
    assert [line["name"] for line in exported(hooked)] == ["c", "a", "b"]


def test_prune_refuses_a_line_whose_name_is_lost(hooked: Cli) -> None:
    hooked.done("apply", "-", "--target", "hook", stdin=jsonl(*GOOD))
    result = hooked("apply", "-", "--target", "hook", "--prune", "--skip-invalid", stdin=jsonl(GOOD[0], "{"))
    assert result.code == 2
    assert "line 2: expected a name that can be read" in result.err
    assert len(exported(hooked)) == 5


def test_an_operators_pause_outlives_the_file(hooked: Cli) -> None:
    hooked.done("apply", "-", "--target", "hook", stdin=jsonl(GOOD[0]))
    hooked.done("schedule", "pause", "a")
    assert hooked.done("apply", "-", "--target", "hook", stdin=jsonl(GOOD[0])).out.startswith(
        "created 0, updated 0, unchanged 1"
    )
    assert exported(hooked)[0]["paused"] is True


@pytest.mark.skipif(not REAL.exists(), reason="the file of real jobs lies beside the repository, not in it")
def test_the_jobs_of_the_kubernetes_project(hooked: Cli) -> None:
    refused = hooked("apply", str(REAL), "--target", "hook")
    assert refused.code == 2
    bad = [line for line in refused.err.splitlines() if line.startswith("line ")]
    assert [line.split(": ")[:3] for line in bad] == [
        ["line 1028", "periodic-sync-enhancements-github-project-1-37", "never_fires"],
        ["line 1271", "ci-kubernetes-e2e-kops-gce-5000-node-dra-with-workload-ipalias-using-cl2", "never_fires"],
    ]
    done = hooked.done("apply", str(REAL), "--target", "hook", "--skip-invalid")
    assert done.out == "created 1333, updated 0, unchanged 0, pruned 0, invalid 2\n"
    assert done.err.count("time-out over 30m") == 1
    again = hooked.done("apply", "-", "--prune", stdin=hooked.done("export").out)
    assert again.out == "created 0, updated 0, unchanged 1333, pruned 0, invalid 0\n"

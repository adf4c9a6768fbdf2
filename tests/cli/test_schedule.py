"""`bucketd target ..` and `bucketd schedule ..` on real stores."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli
from tests.support.target import Reply, Target

HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


@pytest.fixture
def hooked(cli: Cli) -> Cli:
    """With a target `hook`."""
    cli.done("target", "put", "hook", HOOK)
    return cli


def test_target_put_list_show(cli: Cli) -> None:
    put = cli.done(
        "target", "put", "hook", HOOK, "-H", "Authorization: Bearer s3cret", "--timeout", "2m", "--batch-max", "9"
    )
    assert put.out == f"created: hook calls {HOOK}\n"
    shown = cli.done("target", "show", "hook", "--json").json
    assert (shown["timeout_s"], shown["batch_max"], shown["headers"]) == (120, 9, {"Authorization": "***"})
    assert cli.done("target", "list", "--json").lines[0]["name"] == "hook"
    everything = cli.done("target", "list").out + cli.done("target", "show", "hook").out
    assert "hook" in everything
    assert "s3cret" not in everything


POLICY = (
    "--retry-base", "0.5", "--retry-cap", "2m", "--batch-max", "40", "--batch-by-tenant", "--max-running", "7", "--rate", "0.5",
    "--complete-within", "1h", "--dead-hook", "https://example.com/dead",
)  # fmt: skip


def test_each_policy_of_a_target(cli: Cli) -> None:
    wanted = {
        "retry_base_s": 0.5, "retry_cap_s": 120, "batch_max": 40, "batch_by_tenant": True, "body": "envelope", "max_running": 7,
        "rate_per_s": 0.5, "complete_within_s": 3600, "dead_hook_url": "https://example.com/dead",
    }  # fmt: skip
    plain = cli.done("target", "put", "hook", HOOK, "--json").json
    assert plain.items().isdisjoint(wanted.items() - {("body", "envelope")})
    assert cli.done("target", "put", "hook", HOOK, *POLICY, "--json").json.items() >= wanted.items()
    assert cli.done("target", "show", "hook", "--json").json.items() >= wanted.items()
    assert cli.done("target", "put", "hook", HOOK, *POLICY).out.startswith("unchanged:")
    assert cli.done("target", "list").out.split()[-2:] == ["7", "0.5"]
    raw = cli.done("target", "put", "hook", HOOK, "--body", "raw", "--json").json
    assert raw["body"] == "raw"
    assert {key: raw[key] for key in wanted.keys() - {"body"}} == {key: plain[key] for key in wanted.keys() - {"body"}}


def test_target_bad_input(cli: Cli) -> None:
    for arguments, reason in (
        (("--body", "raw", "--batch-max", "2"), "expected batch_max 1 with body raw, got 2"),
        (("--body", "bare"), "envelope, raw"),
        (("--max-running", "0"), "max_running"),
        (("--rate", "0"), "rate_per_s"),
        (("--complete-within", "8d"), "604800"),
        (("--retry-cap", "soon"), "retry_cap: expected a duration"),
        (("--dead-hook", "ftp://x/"), "dead_hook_url to begin with http"),
    ):
        refused = cli("target", "put", "hook", HOOK, *arguments)
        assert refused.code == 2, arguments
        assert reason in refused.err, refused.err
    assert cli("target", "put", "hook", "ftp://x/").code == 2
    assert cli("target", "put", "hook", HOOK, "-H", "nothing").code == 2
    assert cli("target", "put", "hook", HOOK, "--timeout", "31m").code == 2
    assert cli("target", "show", "hook").code == 3
    assert cli.done("target", "list").out == ""


def test_target_test(cli: Cli, target: Target) -> None:
    cli.done("target", "put", "hook", target.url, "-H", "X-Key: v")
    well = cli.done("target", "test", "hook", "--payload", '{"a": 1}')
    assert well.out.startswith(f"ok: hook at {target.url} answered 200 after ")
    request = target.requests[0]
    assert request.body["payload"] == {"a": 1}
    assert request.body["attempt"] == 1
    assert request.headers["X-Key"] == "v"
    assert request.headers["Idempotency-Key"] == request.body["run_id"]
    target.replies.append(Reply(status=500))
    failed = cli("target", "test", "hook", "--json")
    assert failed.code == 1
    assert (failed.json["ok"], failed.json["status"]) == (False, 500)
    assert cli.done("runs", "list").out == ""


def test_target_test_of_a_batch_target(cli: Cli, target: Target) -> None:
    cli.done("target", "put", "hook", target.url, "--batch-max", "10")
    cli.done("target", "test", "hook")
    assert [run["schedule"] for run in target.requests[0].body] == ["bucketd-test"]
    assert target.requests[0].headers["Bucketd-Batch"] == "1"


def test_target_test_of_a_target_that_takes_the_payload_alone(cli: Cli, target: Target) -> None:
    cli.done("target", "put", "hook", target.url, "--body", "raw")
    cli.done("target", "test", "hook", "--payload", '{"a": [1]}')
    assert target.requests[0].body == {"a": [1]}
    assert target.requests[0].headers["Idempotency-Key"] == target.requests[0].headers["Webhook-Id"]


def test_target_test_without_answer(cli: Cli) -> None:
    cli.done("target", "put", "hook", HOOK)
    result = cli("target", "test", "hook")
    assert result.code == 1
    assert "did not answer: ConnectError" in result.out


def test_put_show_list(hooked: Cli) -> None:
    first = hooked.done(
        "schedule", "put", "report", "--target", "hook", "--cron", "0 9 * * *", "--tz", "Europe/Berlin",
        "--payload", '{"a": [1]}', "-l", "team=crm", "-t", "acme", "--timeout", "1h30m", "--jitter", "5m",
    )  # fmt: skip
    assert first.out.startswith("created: acme/report 0 9 * * * Europe/Berlin -> hook; next at ")
    again = hooked.done(
        "schedule", "put", "report", "--target", "hook", "--cron", "0 9 * * *", "--tz", "Europe/Berlin",
        "--payload", '{"a": [1]}', "-l", "team=crm", "-t", "acme", "--timeout", "1h30m", "--jitter", "5m",
    )  # fmt: skip
    assert again.out.startswith("unchanged:")
    shown = hooked.done("schedule", "show", "report", "-t", "acme", "--json").json
    wanted = {
        "cron": "0 9 * * *",
        "tz": "Europe/Berlin",
        "gap": "auto",
        "timeout": "5400s",
        "jitter": "300s",
        "labels": {"team": "crm"},
    }
    assert shown.items() >= wanted.items()
    assert len(shown["next"]) == 3
    assert hooked.done("schedule", "list", "-l", "team=crm", "--json").lines[0]["name"] == "report"
    assert hooked.done("schedule", "list", "-l", "team=ops", "--json").lines == []
    listed = hooked.done("schedule", "list")
    assert "acme" in listed.out
    assert "team=crm" in listed.out
    assert hooked.done("schedule", "put", "report", "--target", "hook", "--every", "15m", "-t", "acme").out.startswith(
        "changed:"
    )


def test_put_refuses(hooked: Cli) -> None:
    base = ("schedule", "put", "x", "--target", "hook")
    for arguments, reason in (
        ((), "exactly one of cron, every and at"),
        (("--cron", "* * * * *", "--every", "5m"), "exactly one of cron, every and at"),
        (("--cron", "61 * * * *"), "0 to 59"),
        (("--cron", "0 0 31 2 *"), "31"),
        (("--cron", "* * * * *", "--tz", "Mars/Olympus"), "Mars/Olympus"),
        (("--at", "2026-01-01 10:00"), "offset"),
        (("--at", "2030-01-01T10:00Z", "--tz", "UTC"), "expected only with cron and every"),
        (("--every", "5m", "--gap", "skip"), "expected only with cron"),
        (("--every", "5m", "--exclude", "soon"), "such as 2026-12-25"),
        (("--every", "5m", "--calendar", "nobodys"), "does not exist"),
        (("--every", "5m", "--max-runs", "3", "--ends-at", "2030-01-01"), "got both"),
        (("--at", "2030-01-01T10:00Z", "--exclude", "2030-01-01"), "got them with at()"),
        (("--every", "5m", "--catch-up-window", "8d"), "604800"),
        (("--every", "5m", "--payload", "{"), "expected JSON"),
        (("--every", "5m", "--payload", "@missing.json"), "cannot read missing.json"),
        (("--every", "5m", "--payload", '"' + "x" * 66_000 + '"'), "65,536"),
        (("--every", "5m", "-l", "a"), "KEY=VALUE"),
        (("--every", "5m", "--overlap", "never"), "overlap"),
        (("--every", "5m", "-t", "a\0b"), "control"),
    ):
        result = hooked(*base, *arguments)
        assert result.code == 2, arguments
        assert reason in result.err, (arguments, result.err)
        assert len(result.err.splitlines()) == 1
    assert "target" in hooked("schedule", "put", "x", "--target", "nobody", "--every", "5m").err
    assert hooked.done("schedule", "list", "--json").out == ""


def test_next_in_both_zones(hooked: Cli) -> None:
    hooked.done("schedule", "put", "s", "--target", "hook", "--cron", "30 9 * * *", "--tz", "Asia/Kolkata")
    coming = hooked.done("schedule", "next", "s", "-n", "2", "--json").lines
    assert [at["at"][11:] for at in coming] == ["04:00:00Z", "04:00:00Z"]
    assert coming[0]["local"].endswith("09:30:00+05:30")
    table = hooked.done("schedule", "next", "s").out
    assert "Asia/Kolkata" in table
    assert table.count("09:30:00+05:30") == 5


def test_pause_resume_skip_trigger_delete(hooked: Cli) -> None:
    hooked.done("schedule", "put", "s", "--target", "hook", "--every", "1h")
    hooked.done("schedule", "pause", "s")
    assert hooked.done("schedule", "list", "--paused", "--json").lines[0]["paused"] is True
    assert "is paused" in hooked.done("schedule", "next", "s").err
    assert hooked.done("schedule", "resume", "s").out.startswith("resumed: default/s; next at ")
    first, second = (line["at"] for line in hooked.done("schedule", "next", "s", "-n", "2", "--json").lines)
    assert hooked.done("schedule", "skip-next", "s", "--json").json == {"skipped": first}
    assert hooked.done("schedule", "next", "s", "-n", "1", "--json").lines[0]["at"] == second
    run = hooked.done("schedule", "trigger", "s").out.strip()
    assert hooked.done("runs", "show", run, "--json").json["status"] == "deferred"
    unasked = hooked("schedule", "delete", "s")
    assert unasked.code == 2
    assert "--yes" in unasked.err
    hooked.done("schedule", "delete", "s", "--yes")
    assert hooked.done("runs", "show", run, "--json").json["status"] == "cancelled"
    for command in ("show", "pause", "resume", "delete", "trigger", "next", "skip-next"):
        missing = hooked("schedule", command, "s")
        assert missing.code == 3, command
        assert missing.err.startswith("error: ")


def test_at_and_lists(hooked: Cli) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    once = hooked.done("schedule", "put", "once", "--target", "hook", "--at", soon, "--json").json
    assert (once["next_at"], once["overlap"]) == (soon, "allow")
    assert "overlap" not in hooked.done("export").lines[0], "it is the default of a one-shot"
    hooked.done("schedule", "put", "once", "--target", "hook", "--at", soon, "--overlap", "skip")
    assert hooked.done("export").lines[0]["overlap"] == "skip"
    assert hooked("schedule", "put", "late", "--target", "hook", "--at", "-1h").code == 2
    for name in "abc":
        hooked.done("schedule", "put", name, "--target", "hook", "--every", "1h")
    some = hooked.done("schedule", "list", "-n", "2", "--json")
    assert [line["name"] for line in some.lines] == ["a", "b"], "by name; `once` comes last"
    assert "more than 2" in hooked.done("schedule", "list", "-n", "2").err
    hooked.done("schedule", "put", "[red]x[/red]", "--target", "hook", "--every", "1h")
    assert "[red]x[/red]" in hooked.done("schedule", "list").out

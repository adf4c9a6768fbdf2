"""`bucketd audit` on real stores: who changed what, in a table and as JSON."""

import pytest

from tests.cli.conftest import Cli

HOOK = "http://127.0.0.1:9/hook"


@pytest.fixture
def busy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """After some changes by two people."""
    monkeypatch.setenv("BUCKETD_ACTOR", "alice")
    cli.done("target", "put", "hook", HOOK, "-H", "Authorization: Bearer s3cret")
    cli.done("schedule", "put", "a", "--target", "hook", "--every", "1h", "--payload", '"s3cret"')
    cli.done(
        "schedule", "put", "a", "--target", "hook", "--every", "2h", "--payload", '"s3cret too"', "-l", "x=" + "y" * 200
    )
    monkeypatch.setenv("BUCKETD_ACTOR", "bob")
    cli.done("schedule", "pause", "a", "--reason", "works")
    cli.done("schedule", "put", "b", "--target", "hook", "--every", "1h", "-t", "acme")
    return cli


def test_newest_first_with_actor_deed_and_changes(busy: Cli) -> None:
    lines = busy.done("audit", "--json").lines
    assert [(line["actor"], line["kind"], line["action"], line["name"]) for line in lines] == [
        ("bob", "schedule", "create", "b"),
        ("bob", "schedule", "pause", "a"),
        ("alice", "schedule", "edit", "a"),
        ("alice", "schedule", "create", "a"),
        ("alice", "target", "create", "hook"),
    ]
    assert lines[2]["changes"]["labels"] == [{}, {"x": "y" * 200}]
    assert lines[2]["changes"]["payload"] is None
    table = busy.done("audit").out
    assert "schedule pause" in table
    assert "default/a" in table
    assert "payload: changed" in table
    assert "expression: 1h -> 2h" in table
    assert "y" * 60 not in table, "long values are cut on the screen"
    assert "s3cret" not in table + busy.done("audit", "--json").out


def test_filters(busy: Cli) -> None:
    assert len(busy.done("audit", "a", "--json").lines) == 3
    assert [line["name"] for line in busy.done("audit", "-t", "acme", "--json").lines] == ["b"]
    assert [line["kind"] for line in busy.done("audit", "--kind", "target", "--json").lines] == ["target"]
    assert len(busy.done("audit", "--actor", "alice", "--json").lines) == 3
    assert len(busy.done("audit", "--from", "-1h", "--json").lines) == 5
    assert busy.done("audit", "--to", "-1h", "--json").lines == []
    assert "no such change" in busy.done("audit", "nobody").err
    some = busy.done("audit", "-n", "2")
    assert "more than 2" in some.err
    assert len(busy.done("audit", "-n", "2", "--json").lines) == 2
    for bad in (("--kind", "cow"), ("--from", "yesterday"), ("-n", "0")):
        assert busy("audit", *bad).code == 2, bad


def test_without_a_name_it_is_who_sits_at_the_shell(cli: Cli) -> None:
    cli.done("target", "put", "hook", HOOK)
    (line,) = cli.done("audit", "--json").lines
    assert "@" in line["actor"]


def test_what_a_tenant_put_into_a_name_does_not_reach_the_screen(busy: Cli) -> None:
    for label in ("esc=before", "esc=\u202eback"):
        busy.done("schedule", "put", "[red]x[/red]", "--target", "hook", "--every", "1h", "-l", label)
    out = busy.done("audit").out
    assert "default/[red]x[/red]" in out
    assert "before" in out
    assert "\u202e" not in out

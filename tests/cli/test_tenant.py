"""`bucketd tenant ..` on real stores: caps put, listed, shown, taken away, and told in the audit log."""

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def dsn(emptied_dsn: str) -> str:
    """No test here minds the others' database."""
    return emptied_dsn


def test_put_list_show_delete(cli: Cli) -> None:
    assert cli.done("tenant", "list").err == "no tenant has a cap\n"
    assert cli.done("tenant", "put", "acme", "--max-running", "50").out == "created: acme runs 50 at once\n"
    assert cli.done("tenant", "put", "acme", "--max-running", "50").out.startswith("unchanged: acme")
    assert cli.done("tenant", "put", "acme", "--max-running", "60", "--json").json["changed"] is True
    cli.done("tenant", "put", "big", "--max-running", "1000")
    assert [(line["name"], line["max_running"]) for line in cli.done("tenant", "list", "--json").lines] == [
        ("acme", 60),
        ("big", 1_000),
    ]
    assert "acme" in cli.done("tenant", "list").out
    assert "more than 1" in cli.done("tenant", "list", "-n", "1").err
    assert cli.done("tenant", "show", "acme", "--json").json["max_running"] == 60
    assert "max_running  60" in cli.done("tenant", "show", "acme").out
    assert "--yes" in cli("tenant", "delete", "acme").err
    assert cli.done("tenant", "delete", "acme", "--yes").out == "deleted: the cap of acme\n"
    for command in (("show", "acme"), ("delete", "acme", "--yes")):
        missing = cli("tenant", *command)
        assert missing.code == 3
        assert "'acme', which has none" in missing.err
    deeds = cli.done("audit", "--kind", "tenant", "--tenant", "acme", "--json").lines
    assert [(line["action"], line["changes"]) for line in deeds] == [
        ("delete", {}),
        ("edit", {"max_running": [50, 60]}),
        ("create", {}),
    ]
    row = next(line for line in cli.done("audit", "--kind", "tenant").out.splitlines() if "tenant edit" in line)
    assert " acme " in row
    assert "max_running: 50 -> 60" in row


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("acme",), "max-running"),
        (("acme", "--max-running", "0"), "expected max_running to be a whole number from 1 to 1000000, got 0"),
        (("acme", "--max-running", "some"), "max-running"),
        (("a\0b", "--max-running", "1"), "control"),
    ],
)
def test_bad_input_changes_nothing(cli: Cli, arguments: tuple[str, ...], reason: str) -> None:
    refused = cli("tenant", "put", *arguments)
    assert refused.code == 2
    assert reason in refused.err
    assert cli.done("tenant", "list", "--json").out == ""

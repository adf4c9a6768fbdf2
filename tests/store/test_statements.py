"""Every named statement is one that Postgres takes, and belongs to a function that uses it."""

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bucketd.store.statements import modules, statements

NAMED = [(module, name) for module in modules() for name in statements(module)]
ROOT = Path(__file__).resolve().parents[2]
UTILITY = ("create temporary table", "copy ", "drop table")  # not for PREPARE; they run when their module's tests run
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")


def positional(text: str) -> str:
    """The statement with $1, $2, .. in place of named placeholders."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _PLACEHOLDER.sub(number, text)


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda part: part)
def test_postgres_prepares_it(migrated: psycopg.Connection[Any], module: str, name: str) -> None:
    text = re.sub(r"^--.*\n", "", statements(module)[name], flags=re.MULTILINE).lstrip()
    if text.startswith(UTILITY):
        return
    with migrated.transaction(force_rollback=True):
        if name == "stage_put":
            migrated.execute(statements(module)["stage_make"].encode())
        migrated.execute(f"prepare checked as {positional(text)}".encode())
        migrated.execute("deallocate checked")


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda part: part)
def test_a_line_of_purpose_stands_before_it(module: str, name: str) -> None:
    assert re.match(r"--\s+\S.{5,}", statements(module)[name]), "expected `-- purpose` below `-- name:`"


@pytest.mark.parametrize("module", modules())
def test_each_statement_is_used(module: str) -> None:
    """By name, in the module that owns the file or in one of its readers."""
    readers = [
        path.read_text(encoding="utf-8")
        for part in ("store", "bucketd", "runner")
        for path in (ROOT / part).rglob("*.py")
    ]
    code = "".join(reader for reader in readers if "statements" in reader)
    assert [name for name in statements(module) if f'"{name}"' not in code] == []


def test_names_are_written_in_full() -> None:
    """No statement depends on the caller's search_path."""
    tables = (
        "cluster|specs|targets|schedules|schedule_versions|runs|claims|runners|partitions|backfills|holds|dead_letters"
        "|calendars|zones|audit|tenants|slots|target_secrets"
    )
    bare = re.compile(rf"\b(?:from|join|update|into)\s+(?:{tables})\b(?!\s*\()", re.IGNORECASE)
    ctes = re.compile(r"(\w+)\s+as\s+(?:not\s+)?(?:materialized\s*)?\(", re.IGNORECASE)
    for module, name in NAMED:
        text = statements(module)[name]
        local = set(ctes.findall(text))
        assert [found for found in bare.findall(text) if found.split()[-1] not in local] == [], f"{module}.{name}"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        statements("feed")["nothing"]


def test_a_name_that_stands_twice_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bucketd.store import statements as module

    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "twice.sql").write_text("-- name: a\nselect 1;\n-- name: a\nselect 2;\n")
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"expected distinct names in sql/twice\.sql"):
        statements("twice")

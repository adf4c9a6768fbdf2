"""ops/postgresql.conf is what Postgres takes, and says nothing that bucketd contradicts."""

from pathlib import Path

import psycopg

from bucketd.embedded.postgres import PostgresServer
from bucketd.runner.loop import CONFIRMERS, RESULT_WRITERS, UPKEEP_CONNECTIONS
from bucketd.scheduler.node import POOL

ROOT = Path(__file__).resolve().parents[2]
NEEDS_RESTART = "setting could not be applied"


def test_every_line_is_understood(postgres: PostgresServer, servers: Path) -> None:
    copy = servers / "notes.conf"
    copy.write_text((ROOT / "ops" / "postgresql.conf").read_text())
    copy.chmod(0o644)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        row = connection.execute("show config_file").fetchone()
        assert row is not None
        main = Path(row[0])
        before = main.read_text()
        main.write_text(f"{before}\ninclude '{copy}'\n")
        try:
            found = connection.execute(
                "select name, error from pg_file_settings where sourcefile = %s", (str(copy),)
            ).fetchall()
        finally:
            main.write_text(before)
    assert len(found) > 20
    assert [line for line in found if line[1] not in (None, NEEDS_RESTART)] == []


def test_its_connections_are_counted_right() -> None:
    runner = CONFIRMERS + RESULT_WRITERS + 1 + 1 + UPKEEP_CONNECTIONS
    text = (ROOT / "ops" / "postgresql.conf").read_text()
    assert f"A scheduler node opens {POOL} and keeps them, a runner {runner} " in text
    assert f"4 nodes and 12 runners: {4 * POOL + 12 * runner}." in text

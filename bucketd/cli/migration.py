"""`bucketd migrate`: brings the database to the schema of this version."""

from __future__ import annotations

import typer

from bucketd.cli.options import Json
from bucketd.cli.output import emit, say
from bucketd.cli.progress import working
from bucketd.cli.session import session


def migrate(context: typer.Context, as_json: Json = False) -> None:
    """Applies the migrations that the database lacks, each in its own transaction; again: changes nothing.

    Safe from many places at once. Run it before the first process of a new version. Needs a role that may create a
    schema.
    """
    from bucketd.store.connect import conninfo
    from bucketd.store.migrate import migrate as apply_migrations

    settings = session(context).settings()
    conninfo(settings)  # a missing or malformed DSN in words, before anything is tried
    with working("migrating"):
        applied = apply_migrations(settings.dsn.get_secret_value())
    if as_json:
        emit({"applied": applied})
    elif applied:
        for name in applied:
            say(f"applied {name}")
    else:
        say("nothing to do: the schema is up to date")

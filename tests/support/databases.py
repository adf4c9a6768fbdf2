"""A migrated template database, and clones of it: a test gets a database of its own in a few tens of milliseconds."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from bucketd.embedded.postgres import PostgresServer
from bucketd.store.migrate import migrate

TEMPLATE = "bucketd_template"


class Databases:
    """Databases of one test server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._execute("create database {}", TEMPLATE)
        migrate(self.url(TEMPLATE))

    def url(self, name: str) -> str:
        """A DSN over TCP, so that a proxy can be put before it."""
        return self._server.database_url(name, tcp=True)

    @contextmanager
    def clone(self, template: str = TEMPLATE) -> Iterator[str]:
        """The DSN of a new copy of `template` (`template1`: an empty one), dropped at the end, connections and all."""
        name = f"test_{uuid.uuid4().hex[:16]}"
        self._execute("create database {} template {}", name, template)
        try:
            yield self.url(name)
        finally:
            self._execute("drop database {} with (force)", name)

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server.database_url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

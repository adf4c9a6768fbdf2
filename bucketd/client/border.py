"""Where psycopg's errors become ours: one class per decision a caller can take. Causes are kept, passwords are not shown."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from bucketd.errors import BucketdError, ConfigError, Conflict, InvalidInput, SchemaError, StoreUnavailable

# A repeat of the whole transaction may succeed at once.
CLASHES = (pg.DeadlockDetected, pg.SerializationFailure)


def mapped(error: psycopg.Error, where: str) -> BucketdError:
    """The error to raise from `error`; `where`: the server as people name it, without a password."""
    text = first_line(error)
    match error:
        case (
            pg.UndefinedTable()
            | pg.UndefinedFunction()
            | pg.UndefinedColumn()
            | pg.UndefinedObject()
            | pg.InvalidSchemaName()
        ):
            return SchemaError(f"expected bucketd's schema at {where}: {text}; run `bucketd migrate`")
        case pg.InsufficientPrivilege():
            return ConfigError(f"the database role lacks a right at {where}: {text}; grant it, or use another role")
        case pg.InFailedSqlTransaction():
            return Conflict("the transaction of this connection has failed before; roll it back, then try again")
        case pg.DeadlockDetected() | pg.SerializationFailure():
            return Conflict(f"the transaction clashed with another one: {text}; roll it back and run it again")
        case pg.ForeignKeyViolation():
            return Conflict(f"what this refers to was deleted in the meantime: {text}; read it again")
        case pg.ReadOnlySqlTransaction():
            return StoreUnavailable(f"Postgres at {where} takes no writes now ({text}); is it a standby? check the DSN")
        case pg.QueryCanceled() | pg.LockNotAvailable():
            return StoreUnavailable(f"Postgres at {where} did not finish in time: {text}; try again, or ask for less")
        case psycopg.DataError() | psycopg.IntegrityError():
            return InvalidInput(f"Postgres refused a value: {text}")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"cannot use Postgres at {where}: {text}; check the DSN and that it runs")
        case _:
            return BucketdError(f"Postgres at {where} refused a statement: {text}")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

"""Walks along an index, whatever the statistics say, for statements that go through a backlog a short stretch at a time.

Where rows pile up within seconds the statistics are old, and a sort or a hash of all that waits in place of a walk along an index
would be a statement that never ends in time.
"""

from __future__ import annotations

from typing import TypeVar

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements

_SQL = "walks"
T = TypeVar("T")


def by_index(operation: Operation[T]) -> Operation[T]:
    """Runs an operation with walks along indexes alone. For use inside a transaction, whose own settings are as before afterwards."""
    rows = yield Query(statements(_SQL)["narrow"])
    result = yield from operation
    yield Query(statements(_SQL)["restore"], {"names": [row[0] for row in rows], "values": [row[1] for row in rows]})
    return result

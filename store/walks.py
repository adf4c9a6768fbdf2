"""Walks along an index, whatever the statistics say, for statements that go through a backlog a short stretch at a time.

Where rows pile up within seconds the statistics are old, and a sort or a hash of all that waits in place of a walk along an index
would be a statement that never ends in time.
"""

from __future__ import annotations

from bucketd.store.operation import Operation, Query, Row
from bucketd.store.statements import statements

_SQL = "walks"


def by_index(query: Query) -> Operation[list[Row]]:
    """The rows of a query, by walks along indexes alone. For use inside a transaction, whose own settings are as before afterwards."""
    before = yield Query(statements(_SQL)["narrow"])
    rows = yield query
    yield Query(
        statements(_SQL)["restore"], {"names": [row[0] for row in before], "values": [row[1] for row in before]}
    )
    return rows

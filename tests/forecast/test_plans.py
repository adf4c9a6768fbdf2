"""The statements over all schedules hash their join whatever Postgres knows of what they are given: a nested loop would be an outage."""

import re
from typing import Any

import psycopg
import pytest

from bucketd.store import forecast
from bucketd.store.forecast import Asked, AskedMinute, AskedSpec, Scope, Stretch
from bucketd.store.operation import Operation, Query
from tests.store.test_statements import positional

STRETCH = Stretch("(0,0)", "(64,0)")
SPECS = Asked.of(AskedSpec, [AskedSpec(1, None, 0, None, -3_600, 3_600)])
MINUTES = Asked.of(AskedMinute, [AskedMinute(1, 0, 1_800_000_000, None, None, 1_799_990_000, 1_800_010_000)])


@pytest.mark.parametrize(
    "operation",
    [
        forecast.groups(Scope(), STRETCH, SPECS, 1_800_000_000, 60, 60, "tenant"),
        forecast.peaks(Scope(), STRETCH, MINUTES),
        forecast.members(Scope(), STRETCH, MINUTES),
    ],
    ids=["groups", "peaks", "members"],
)
def test_a_generic_plan_hashes(sql: psycopg.Connection[Any], operation: Operation[Any]) -> None:
    query = next(operation)
    assert isinstance(query, Query)
    operation.close()
    sql.execute("set plan_cache_mode = force_generic_plan")
    text = positional(query.sql)
    sql.execute(f"prepare asked as {text}".encode())
    nulls = ", ".join(["null"] * max(map(int, re.findall(r"\$(\d+)", text))))
    plan = "\n".join(row[0] for row in sql.execute(f"explain execute asked({nulls})".encode()))
    assert "Hash Full Join" in plan
    assert "Join Filter" not in plan
    assert "Tid Range Scan" in plan

"""Schedules written by raw SQL, as an application may, and what became of them."""

from typing import Any
from uuid import UUID, uuid4

import psycopg

from bucketd.timing import AtSpec, EverySpec, Spec, parse_cron


class Rows:
    """Writes and reads a test's database through one connection, which may be inside a transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._specs: dict[str, int] = {}
        self._target: int | None = None

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of a statement; none for one that returns no rows."""
        cursor = self.connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *parameters: Any) -> Any:
        """The first value of the first row."""
        return self.sql(statement, *parameters)[0][0]

    def target(self) -> int:
        """Id of a target that nobody calls."""
        if self._target is None:
            made = (
                "insert into bucketd.targets (name, url) values ('sink', 'http://127.0.0.1:9/') on conflict do nothing"
            )
            self.sql(made)
            self._target = self.one("select target_id from bucketd.targets where name = 'sink'")
        return self._target

    def spec(self, spec: Spec) -> int:
        """Id of a spec, stored if it was not."""
        rule = spec.rule()
        if rule not in self._specs:
            every_s = spec.every_s if isinstance(spec, EverySpec) else None
            self.sql(
                "insert into bucketd.specs (kind, rule, every_s) values (%s, %s, %s) on conflict do nothing",
                spec.kind, rule, every_s,
            )  # fmt: skip
            self._specs[rule] = self.one("select spec_id from bucketd.specs where rule = %s", rule)
        return self._specs[rule]

    def schedule(self, spec: Spec, phase: int = 0, *, id: UUID | None = None, **columns: Any) -> UUID:
        """A new schedule; `columns` are those of the table. Its runs may overlap: most tests confirm them and never call."""
        id = id or uuid4()
        values = {
            "id": id, "name": id.hex, "spec_id": self.spec(spec), "phase": phase, "target_id": self.target(),
            "overlap": "allow", **columns,
        }  # fmt: skip
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        self.sql(f"insert into bucketd.schedules ({names}) values ({marks})", *values.values())
        return id

    def every(self, every_s: int, phase: int = 0, **columns: Any) -> UUID:
        """A new interval schedule."""
        return self.schedule(EverySpec(every_s), phase % every_s, **columns)

    def at(self, at_s: int, **columns: Any) -> UUID:
        """A new one-shot."""
        return self.schedule(AtSpec(), at_s, **columns)

    def cron(self, expression: str, tz: str = "UTC", **columns: Any) -> UUID:
        """A new cron schedule."""
        return self.schedule(parse_cron(expression, tz)[0], **columns)

    def of(self, id: UUID, *columns: str) -> Any:
        """Some columns of a schedule: a value for one, a tuple for more."""
        row = self.sql(f"select {', '.join(columns)} from bucketd.schedules where id = %s", id)[0]
        return row[0] if len(columns) == 1 else row

    def runs(self, id: UUID) -> list[tuple[int, str, str, int, str | None]]:
        """(instant, status, origin, missed, reason) of a schedule's runs, oldest first."""
        return [
            tuple(row)
            for row in self.sql(
                "select extract(epoch from scheduled_at)::bigint, status::text, origin::text, missed, reason"
                " from bucketd.runs where schedule_id = %s order by scheduled_at",
                id,
            )
        ]

    def now(self) -> float:
        """The cluster's clock."""
        return float(self.one("select extract(epoch from bucketd.bucketd_now())"))

    def turn_clock(self, by_s: float) -> None:
        """Moves the cluster's clock on (or back)."""
        self.sql("update bucketd.cluster set clock_offset = clock_offset + make_interval(secs => %s::float8)", by_s)

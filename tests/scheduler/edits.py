"""Random sequences of put, edit, pause, resume and delete over many schedules at once: to the database, and to a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import psycopg

from bucketd.timing import AtSpec, EverySpec, Spec, parse_cron
from tests.scheduler.draws import Draws, Name, Write
from tests.support.edit_model import History, Span, Timing
from tests.support.rows import Rows

CALM_SHARDS = 10  # below: fires are confirmed in the step in which they fall due. Only there transactions stay open
MISFIRES = ("run_once", "skip", "catch_up")
SLOW_SHARE, SLOW_WRITES, SLOW_STEPS = 0.15, 25, (1, 90)  # steps that open one, writes in it, how long it stays open
# In the order in which one step runs them. A put is by name, as an application writes it, and creates or changes.
STATEMENTS = {
    "delete": "delete from bucketd.schedules s using unnest(%s::uuid[]) u(id) where s.id = u.id",
    "put": """
        insert into bucketd.schedules (id, name, spec_id, phase, jitter_s, misfire, overlap, target_id)
        select u.*, 'allow', t.target_id
        from unnest(%s::uuid[], %s::text[], %s::int[], %s::bigint[], %s::int[], %s::text[])
            u(id, name, spec_id, phase, jitter_s, misfire), bucketd.targets t where t.name = 'sink'
        on conflict (tenant, name) do update
        set spec_id = excluded.spec_id, phase = excluded.phase, jitter_s = excluded.jitter_s""",
    "retime": """
        update bucketd.schedules s set spec_id = u.spec_id, phase = u.phase, jitter_s = u.jitter_s
        from unnest(%s::uuid[], %s::int[], %s::bigint[], %s::int[]) u(id, spec_id, phase, jitter_s) where s.id = u.id""",
    "other": """
        update bucketd.schedules s set payload = to_json(u.text), labels = jsonb_build_object('edit', u.text), timeout_s = u.n,
            target_id = (select min(t.target_id) from bucketd.targets t where t.target_id <> s.target_id)
        from unnest(%s::uuid[], %s::text[], %s::int[]) u(id, text, n) where s.id = u.id""",
    "pause": "update bucketd.schedules s set paused = true from unnest(%s::uuid[]) u(id) where s.id = u.id",
    "resume": "update bucketd.schedules s set paused = false from unnest(%s::uuid[]) u(id) where s.id = u.id",
}


class Slow(NamedTuple):
    """A transaction that was opened and is committed some steps later."""

    connection: psycopg.Connection[Any]
    begin_s: float
    until_step: int
    writes: list[Write]


class Edits:
    """Draws the writes of each step. The cluster's clock stands still in a step, so that the model knows when each was made."""

    def __init__(self, rows: Rows, dsn: str, seed: int, *, names: int, start_s: int, steps: int) -> None:
        self.rows, self.steps = rows, steps
        self.draws = Draws(seed, start_s)
        self.names = [self.draws.name(n) for n in range(names)]
        self.written = 0
        self._dsn = dsn
        self._slow: Slow | None = None
        self._next: defaultdict[int, list[Name]] = defaultdict(list)
        for name in self.names:
            self._next[self.draws.random.randrange(steps // 3)].append(name)
        rows.target()
        rows.sql("insert into bucketd.targets (name, url) values ('other', 'http://127.0.0.1:9/other')")

    def write(self, step: int, now_s: float) -> None:
        """All writes of one step; those of a slow transaction are told to the model when it is committed."""
        if self._slow is not None and step >= self._slow.until_step:
            self._commit(self._slow, step, now_s)
        names = self._next.pop(step, [])
        if self._slow is None and step < self.steps and self.draws.random.random() < SLOW_SHARE:
            calm = [name for name in names if name.number % 16 < CALM_SHARDS][:SLOW_WRITES]
            names = [name for name in names if name not in calm]
            self._open([write for name in calm for write in self.draws.writes(name, now_s, slow=True)], step, now_s)
        writes = [write for name in names for write in self.draws.writes(name, now_s)]
        self._send(self.rows.connection, writes)
        for write in writes:
            _tell(write, Span(now_s, now_s))
        for name in names:
            self._set_next(name, step, now_s)

    def _open(self, writes: list[Write], step: int, now_s: float) -> None:
        connection = psycopg.connect(self._dsn)
        self._send(connection, writes)
        self._slow = Slow(connection, now_s, step + self.draws.random.randint(*SLOW_STEPS), writes)

    def _commit(self, slow: Slow, step: int, now_s: float) -> None:
        slow.connection.commit()
        slow.connection.close()
        for write in slow.writes:
            _tell(write, Span(slow.begin_s, now_s))
            self._set_next(write.name, step, now_s)
        self._slow = None

    def _set_next(self, name: Name, step: int, now_s: float) -> None:
        following = self.draws.following(name, step, now_s)
        if following is not None and following < self.steps:
            self._next[following].append(name)

    def _send(self, connection: psycopg.Connection[Any], writes: Iterable[Write]) -> None:
        lines: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for write in writes:
            lines[write.kind].append(self._line(write))
            self.written += 1
        for kind, statement in STATEMENTS.items():
            if lines[kind]:
                connection.execute(statement.encode(), [list(column) for column in zip(*lines[kind], strict=True)])

    def _line(self, write: Write) -> tuple[Any, ...]:
        timing, number = write.timing, write.name.number
        spec = self.rows.spec(_spec(timing))
        if write.kind == "put":
            return write.id, f"name-{number}", spec, timing.phase_s, timing.jitter_s, MISFIRES[number // 16 % 3]
        if write.kind == "retime":
            return write.id, spec, timing.phase_s, timing.jitter_s
        return (write.id, f"edit {self.written}", self.written % 99 + 1) if write.kind == "other" else (write.id,)


def _tell(write: Write, when: Span) -> None:
    """To the model."""
    name, life = write.name, write.name.current
    if write.kind == "put" and (life is None or life.id != write.id):
        name.current = History(write.id, write.timing, when)
        name.lives.append(name.current)
        return
    assert life is not None
    if write.kind in ("put", "retime"):
        life.retime(write.timing, when)
    elif write.kind == "pause":
        life.pause(when)
    elif write.kind == "resume":
        life.resume(when)
    elif write.kind == "delete":
        life.delete(when)
        name.current = None


def _spec(timing: Timing) -> Spec:
    if timing.every_s is not None:
        return EverySpec(timing.every_s)
    return AtSpec() if timing.cron is None else parse_cron(timing.cron, "UTC")[0]

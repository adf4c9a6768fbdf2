"""The invariants of the design, checked against evidence. Each check returns complaints; none is the good answer.

I5, I9 and I13 need more than rows and calls: a pause with its time, a watch over time, the processes. They have tests
of their own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.support.evidence import Call, Evidence, Key, Row

SHOWN = 12
FINAL = {"succeeded", "skipped", "cancelled", "dead"}


def check(evidence: Evidence) -> None:
    """AssertionError that lists what is wrong, if anything is."""
    complaints = list(complain(evidence))
    if complaints:
        more = f"\n.. and {len(complaints) - SHOWN} more" if len(complaints) > SHOWN else ""
        raise AssertionError(f"{len(complaints)} complaints:\n" + "\n".join(complaints[:SHOWN]) + more)


def complain(evidence: Evidence) -> Iterator[str]:
    """Every complaint of every check."""
    for one in (
        one_row_a_run,
        attempts_without_gap,
        nothing_lost,
        nothing_early,
        nobody_forgotten,
        nothing_after_success,
    ):
        yield from one(evidence)


def one_row_a_run(evidence: Evidence) -> Iterator[str]:
    """I1: each call belongs to a row, and no two calls are one attempt of one run."""
    known = {(row.key, row.at) for row in evidence.rows}
    times = Counter((call.run_id, call.attempt) for call in evidence.calls)
    yield from (
        f"I1 called {count} times: attempt {n} of {run_id}" for (run_id, n), count in times.items() if count > 1
    )
    yield from (f"I1 call without a row: {call}" for call in evidence.calls if (call.key, call.at) not in known)
    ids = defaultdict(set)
    for call in evidence.calls:
        ids[call.key, call.at].add(call.run_id)
    yield from (f"I1 several run ids of one run key: {found}" for found in ids.values() if len(found) > 1)


def attempts_without_gap(evidence: Evidence) -> Iterator[str]:
    """I2: attempts only rise, none is beyond the row's, the last one is its result, and no failure is recorded twice.

    An attempt that was lost with its runner may have neither call nor record.
    """
    calls = _calls_by_run(evidence)
    for row in evidence.rows:
        attempts = [call.attempt for call in calls.get((row.key, row.at), ())]
        if attempts != sorted(attempts) or (attempts and attempts[-1] > row.attempt):
            yield f"I2 attempts {attempts} arrived for {row}"
        if row.status == "succeeded" and (not attempts or attempts[-1] != row.attempt):
            yield f"I2 succeeded in attempt {row.attempt}, but called were {attempts}: {row}"
        if list(row.errors) != sorted({*row.errors} & {*range(1, row.attempt + 1)}):
            yield f"I2 failures of attempts {row.errors} recorded: {row}"


def nothing_lost(evidence: Evidence) -> Iterator[str]:
    """I3 and the counts: a due occurrence has a row or is counted in a later one; nothing else has a row."""
    rows: dict[Key, list[Row]] = defaultdict(list)
    for row in evidence.rows:
        rows[row.key].append(row)
    for key in evidence.due.keys() | rows.keys():
        yield from _of_one_schedule(key, evidence, rows[key])


def _of_one_schedule(key: Key, evidence: Evidence, rows: list[Row]) -> Iterator[str]:
    due, either_way = evidence.due.get(key, set()), evidence.either_way.get(key, set())
    have = {row.at for row in rows if row.origin != "trigger"}
    lacking = due - have
    counted = sum(row.missed for row in rows)
    # What may go either way may also be counted.
    if not len(lacking) <= counted <= len(lacking) + len(either_way - have):
        yield f"I3 {len(lacking)} of {len(due)} occurrences have no row, {counted} are counted: {key}, {sorted(lacking)[:5]}"
    newest = max((row.at for row in rows if row.missed), default=float("-inf"))
    if lacking and counted and max(lacking) > newest:
        yield f"I3 counted in {newest}, which is older than the missed {max(lacking)}: {key}"
    yield from (f"I3 a row that nobody asked for: {row}" for row in rows if row.at in have - due - either_way)


def nothing_early(evidence: Evidence) -> Iterator[str]:
    """I4: neither a start by Postgres's clock nor a call (same machine, same clock) before the due instant."""
    jitter = {(row.key, row.at): row.jitter_s for row in evidence.rows}
    for row in evidence.rows:
        if row.started is not None and row.started < row.at + row.jitter_s:
            yield f"I4 started {row.at + row.jitter_s - row.started:.6f} s early: {row}"
    for call in evidence.calls:
        early = call.at + jitter.get((call.key, call.at), 0) - call.arrived
        if early > 0:
            yield f"I4 called {early:.6f} s early: {call}"


def nobody_forgotten(evidence: Evidence) -> Iterator[str]:
    """I7: a run that is not final waits for an instant or is held by a living runner."""
    for row in evidence.rows:
        if row.status not in FINAL and not row.woken and not row.claimed:
            yield f"I7 neither final, nor waiting, nor held by a living runner: {row}"


def nothing_after_success(evidence: Evidence) -> Iterator[str]:
    """No call begins after the success of its run was written."""
    finished = {(row.key, row.at): row.finished for row in evidence.rows if row.status == "succeeded"}
    for call in evidence.calls:
        end = finished.get((call.key, call.at))
        if end is not None and call.arrived > end:
            yield f"doubled: called {call.arrived - end:.6f} s after its success was written: {call}"


def _calls_by_run(evidence: Evidence) -> dict[tuple[Key, float], list[Call]]:
    found: dict[tuple[Key, float], list[Call]] = defaultdict(list)
    for call in evidence.calls:
        found[call.key, call.at].append(call)
    return found

"""What the bench checks on its own result. Pure: the figures come from the target and from Postgres, `due` from neither."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was due, what came, and what stands in the tables."""

    due: int  # occurrences, by arithmetic
    delivered: int  # runs in the requests that the target got
    doubled: int  # of them, beyond the first of a schedule
    missing: int  # schedules that no request named
    wrong: int  # runs with a wrong tenant, payload, instant or attempt
    early_calls: int  # runs in requests that arrived before the due instant
    rows: int  # runs of the due instant
    succeeded: int
    first_attempts: int
    early_rows: int  # started before they were due, by Postgres's clock
    other_rows: int  # neither preloaded nor due
    settled_rows: int  # that settling added


def judge(evidence: Evidence) -> dict[str, bool]:
    """Each check by name; the bench's result counts only if all hold."""
    return {
        "delivered = due": evidence.delivered == evidence.due,
        "rows = due": evidence.rows == evidence.due,
        "all succeeded": evidence.succeeded == evidence.due,
        "attempts = 1": evidence.first_attempts == evidence.due,
        "doubled = 0": evidence.doubled == 0,
        "missing = 0": evidence.missing == 0,
        "wrong = 0": evidence.wrong == 0,
        "early = 0": evidence.early_calls == 0 and evidence.early_rows == 0,
        "other rows = 0": evidence.other_rows == 0,
        "settled rows added = 0": evidence.settled_rows == 0,
    }

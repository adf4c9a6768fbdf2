"""How `bucketd dead` draws dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bucketd.cli.output import note, pairs, plain, short, table

if TYPE_CHECKING:
    from bucketd.store.dead_letters import DeadLetter

ERROR_WIDTH = 60  # in a list; `show` has all of it
COLUMNS = (">id", "tenant", "schedule", "scheduled at", "died ago", ">attempts", "reason", "last error")


def row(letter: DeadLetter, now: datetime) -> tuple[object, ...]:
    """A line of the list."""
    ago = short((now - letter.died_at).total_seconds())
    said = last_error(letter)
    error = said if len(said) <= ERROR_WIDTH else f"{said[: ERROR_WIDTH - 2]}.."
    return letter.id, letter.tenant, letter.name, letter.scheduled_at, ago, letter.attempts, letter.reason, error


def last_error(letter: DeadLetter) -> str:
    """What the last attempt that has an end said."""
    return str(letter.failures[-1].get("error") or "") if letter.failures else ""


def draw(letter: DeadLetter) -> None:
    """One letter: what it says, its attempts as a table, and what a replay would do otherwise than the run that died."""
    values = plain(letter)
    assert isinstance(values, dict)
    for name in ("failures", "changed", "hook", "hook_tries"):
        values.pop(name)
    if letter.hook:
        tries = f"{letter.hook_tries} {'try' if letter.hook_tries == 1 else 'tries'}"
        values["hook"] = f"{letter.hook} after {tries}" if letter.hook_tries else letter.hook
    pairs(values)
    table((">attempt", "began", ">took", ">http", "error"), attempts(letter), empty="it never had an attempt")
    if letter.changed is None:
        note("its schedule was deleted: it cannot be replayed or run again, only discarded")
    elif letter.changed:
        what = " and ".join(letter.changed)
        note(f"the schedule has another {what} by now: a replay uses the schedule's, not the letter's")


def attempts(letter: DeadLetter) -> Iterator[tuple[object, ...]]:
    """A line for each attempt; those whose runner was lost left nothing but their number."""
    failures: dict[int, Mapping[str, Any]] = {int(one.get("attempt") or 0): one for one in letter.failures}
    for number in sorted({*failures, *range(1, letter.attempts + 1)}):
        one = failures.get(number)
        if one is None:
            yield number, None, None, None, "no end is known: its runner was lost"
        else:
            yield number, one.get("began"), short(_took_s(one)), one.get("status"), one.get("error")


def _took_s(failure: Mapping[str, Any]) -> float | None:
    began, ended = failure.get("began"), failure.get("at")
    if not (began and ended):
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()

"""What the answer to a request of many runs says of each of them. Pure.

A target that did not get all of them done answers 2xx with JSON that names runs, those that failed at least:

    {"runs": [{"run_id": "..", "status": 503, "error": "..", "retry_after_s": 30}, {"run_id": "..", "status": 200}]}

Each named run has its own status, by the classes of HTTP; a run that is not named, or of which nothing is said, has that of the
request. An error without a status is a failure, and so is a status that is none: the target said something about this run, and
calling it again is safer than losing it. For the same reason a 207, which means "see inside", is a failure of all if nothing can
be read inside; any other 2xx is a success of all then, for most targets just say OK.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

from bucketd.runner.call import Answer
from bucketd.runner.run import Run

MULTI_STATUS = 207


def by_answer(runs: list[Run], answer: Answer) -> Iterable[tuple[Answer, list[Run]]]:
    """The runs of a request, grouped by what the answer means for them."""
    named = _named(answer.report) if answer.report else None
    if named is None:
        return [(Answer(None, "HTTP 207 without a status per run") if answer.status == MULTI_STATUS else answer, runs)]
    own = Answer(answer.status)
    groups: dict[Answer, list[Run]] = {}
    for run in runs:
        groups.setdefault(named.get(run.run_id) or own, []).append(run)
    return groups.items()


def _named(report: bytes) -> dict[str, Answer | None] | None:
    """What is said of each run by its id, of several entries the last; None: this is no report."""
    try:
        read = json.loads(report)
        entries = read.get("runs") if isinstance(read, dict) else None
        if not isinstance(entries, list):
            return None
        objects = (entry for entry in entries if isinstance(entry, dict))
        return {entry["run_id"]: _answer(entry) for entry in objects if isinstance(entry.get("run_id"), str)}
    except (ValueError, RecursionError):  # not JSON, or nested without end
        return None


def _answer(entry: dict[str, Any]) -> Answer | None:
    """None: nothing is said."""
    status, error = entry.get("status"), _text(entry.get("error"))
    if status is None:
        return Answer(None, error) if error else None
    if type(status) is not int or not 200 <= status <= 599:
        return Answer(
            None, f"expected a status from 200 to 599 for this run, got {json.dumps(status)} {error}".rstrip()
        )
    if status < 300:
        return Answer(status)
    return Answer(status, f"HTTP {status} {error}".rstrip(), _seconds(entry.get("retry_after_s")))


def _text(value: object) -> str:
    """As it may be shown (the row bounds it); nothing for what is empty."""
    return value if isinstance(value, str) else json.dumps(value) if value else ""


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return max(0.0, seconds) if isfinite(seconds) else None

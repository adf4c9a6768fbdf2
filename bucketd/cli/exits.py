"""Exit codes, and which error ends in which."""

from __future__ import annotations

import sys

OK = 0
UNHEALTHY = 1
BAD_INPUT = 2
NOT_FOUND = 3
UNAVAILABLE = 4
CONFLICT = 5

MEANING = (
    "Exit codes: 0 done and well; 1 the thing asked about is unhealthy or failed, or you answered no; 2 wrong usage,"
    " setting or input (nothing was changed); 3 no such thing; 4 a store cannot be reached or is not fit (schema, version,"
    " eviction policy); 5 conflict with the present state; 130 interrupted."
)


def code_of(error: BaseException) -> int | None:
    """The exit code of an error that is for people; None: it is a bug."""
    from bucketd.store import errors

    match error:
        case errors.SchemaError() | errors.StoreUnavailable() | errors.UnfitRedis():
            return UNAVAILABLE
        case errors.NotFound():
            return NOT_FOUND
        case errors.Conflict():
            return CONFLICT
        case errors.BucketdError():
            return BAD_INPUT
    return _code_of_others(error)


def _code_of_others(error: BaseException) -> int | None:
    """Two families that store/errors.py cannot know: it imports nothing of ours."""
    if "bucketd.timing.errors" in sys.modules:
        from bucketd.timing.errors import TimingError

        if isinstance(error, TimingError):
            return BAD_INPUT
    if "bucketd.embedded" in sys.modules:
        from bucketd.embedded import EmbeddedError

        if isinstance(error, EmbeddedError):
            return UNAVAILABLE
    return None


def report(error: BaseException) -> None:
    """Writes `error: ..` to stderr, red on a terminal."""
    from bucketd.cli.output import clean, stderr

    lines = [clean(line) for line in str(error).splitlines()] or [type(error).__name__]
    stderr().print("error: " + "\n".join(lines), style="bold red", markup=False, highlight=False, soft_wrap=True)

"""Exit codes, and which error ends in which."""

from __future__ import annotations

import sys

from bucketd.store.errors import BucketdError

UNHEALTHY = 1
BAD_INPUT = BucketdError.exit_code

MEANING = (
    "Exit codes: 0 done and well; 1 the thing asked about is unhealthy or failed, or you answered no; 2 wrong usage,"
    " setting or input (nothing was changed); 3 no such thing; 4 a store cannot be reached or is not fit (schema, version,"
    " eviction policy); 5 conflict with the present state; 130 interrupted."
)


def code_of(error: BaseException) -> int | None:
    """The exit code of an error that is for people; None: it is a bug."""
    if isinstance(error, BucketdError):
        return error.exit_code
    if "bucketd.timing.errors" in sys.modules:  # timing is pure: its errors are no BucketdError
        from bucketd.timing.errors import TimingError

        if isinstance(error, TimingError):
            return BAD_INPUT
    return None


def report(error: BaseException) -> None:
    """Writes `error: ..` to stderr, red on a terminal."""
    from bucketd.cli.output import clean, stderr

    lines = [clean(line) for line in str(error).splitlines()] or [type(error).__name__]
    stderr().print("error: " + "\n".join(lines), style="bold red", markup=False, highlight=False, soft_wrap=True)

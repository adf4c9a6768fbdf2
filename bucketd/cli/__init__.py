"""The command line. Heavy imports stand inside the commands, so that `bucketd --help` answers at once."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command (`arguments`: those of the process by default) and returns its exit code, see exits.py.

    An error that is for people becomes one line on stderr; anything else is a bug and raises, with its traceback.
    """
    from bucketd.cli.app import app
    from bucketd.cli.exits import code_of, report

    try:
        app(args=None if arguments is None else list(arguments), prog_name="bucketd")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        code = code_of(error)
        if code is None:
            raise
        report(error)
        return code
    return 0

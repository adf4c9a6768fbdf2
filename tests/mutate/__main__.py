"""Does a test turn red for each guard of the product that is taken away?

Command: ``python -m tests.mutate`` (or ``make mutate``), ``--only NAME`` for some, ``--list`` to see them, ``--json`` for machines.
Exit code 0: each was caught by an assertion of its named tests; 1: one was not; 2: nothing can be said, for the named tests fail
in a whole build, or a switch does not fit the product any more. Guards stand in tests/mutate/guards, their places in the product
carry the comment ``guard: <name>``. Builds are copies in a temporary directory; the checkout and the wheel hold no switch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from rich.console import Console

from tests.mutate.campaign import Campaign, NotGreen, Result
from tests.mutate.guard import Guard, Misplaced
from tests.mutate.guards import GUARDS
from tests.mutate.table import as_json, show

CAUGHT, NOT_CAUGHT, NOTHING_SAID = 0, 1, 2
WIDTH = 180  # of a table that goes into a file


def main(argv: list[str] | None = None, guards: Sequence[Guard] = GUARDS) -> int:
    """Runs it; the exit code."""
    options = arguments(argv, [guard.name for guard in guards])
    guards = [guard for guard in guards if not options.only or guard.name in options.only]
    if options.list:
        for guard in guards:
            print(f"{guard.name:24}{guard.file}: {guard.why}")
        return CAUGHT
    progress = Console(stderr=True, highlight=False)
    try:
        results = campaign(guards, options.jobs, progress)
    except (NotGreen, Misplaced) as error:
        progress.print(str(error), style="bold red", markup=False)
        return NOTHING_SAID
    if options.json:
        print(json.dumps(as_json(results)))
    else:
        show(Console(width=None if sys.stdout.isatty() else WIDTH), results)
    return CAUGHT if all(result.is_caught for result in results) else NOT_CAUGHT


def arguments(argv: list[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description="takes away one guard at a time")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="this guard; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the guards and what each is for; test nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON array in place of the table")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="builds that are tested at a time (2)")
    return parser.parse_args(argv)


def campaign(guards: Sequence[Guard], jobs: int, progress: Console) -> list[Result]:
    """All results. Raises NotGreen and Misplaced."""

    def told(result: Result) -> None:
        line = f"{result.guard.name:24}{result.judgement.verdict.value}, {result.seconds:.1f} s"
        progress.print(line, style="" if result.is_caught else "bold red", markup=False)

    with tempfile.TemporaryDirectory(prefix="bucketd-mutate-", ignore_cleanup_errors=True) as directory:
        run = Campaign(guards, Path(directory), jobs=jobs)
        began = monotonic()
        shaky = run.prepare()
        progress.print(f"the whole build is green, {monotonic() - began:.1f} s")
        for test in shaky:
            progress.print(
                f"passed alone only, so a busy machine may speak for it: {test}", style="yellow", markup=False
            )
        return run.run(told)


if __name__ == "__main__":
    sys.exit(main())

"""`bucketd doctor`: is everything as it must be, and if not, what is to be done?"""

from __future__ import annotations

import typer

from bucketd.cli.checks import Check, Verdict, overall
from bucketd.cli.exits import UNHEALTHY
from bucketd.cli.options import Json
from bucketd.cli.output import clean, emit, stdout
from bucketd.cli.progress import working
from bucketd.cli.session import session

_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Checks both stores, the schema, rights, clocks, days of runs, and who is alive; changes nothing.

    One line a check: ok, warn or fail, what was found, and what to do. Code 1 if any fails; warnings leave it 0.
    """
    from bucketd.cli.checks_postgres import postgres_checks
    from bucketd.cli.checks_redis import redis_checks
    from bucketd.store.connect import conninfo

    settings = session(context).settings()
    conninfo(settings)
    with working("looking"):
        checks = [*postgres_checks(settings), *redis_checks(settings)]
    worst = overall(checks)
    if as_json:
        emit({"verdict": worst, "checks": checks})
    else:
        _draw(checks)
    if worst is Verdict.FAIL:
        raise typer.Exit(UNHEALTHY)


def _draw(checks: list[Check]) -> None:
    from rich.text import Text

    width = max(len(check.name) for check in checks)
    for check in checks:
        line = Text()
        line.append(f"{check.verdict:<4}", style=_STYLES[check.verdict])
        line.append(f"  {check.name:<{width}}  {clean(check.found)}")
        stdout().print(line, soft_wrap=True)
        if check.advice:
            stdout().print(Text(f"{'':<{width + 6}}  -> {clean(check.advice)}", style="dim"), soft_wrap=True)

"""`bucketd config` and `bucketd version`: what this process would work with."""

from __future__ import annotations

import typer

from bucketd.cli.options import Json
from bucketd.cli.output import emit, say, table
from bucketd.cli.session import session


def config(context: typer.Context, as_json: Json = False) -> None:
    """Prints the effective settings, passwords blanked; a star marks what differs from the default."""
    from bucketd.store.config import PREFIX, Settings
    from bucketd.store.redis_client import address_of

    settings = session(context).settings()
    shown = settings.shown()
    kind = str(address_of(settings)) if shown["redis_url"] else ""
    if as_json:
        emit({**shown, "redis_kind": kind})
        return
    default = Settings.load({}).shown()
    described = {name: field.description or "" for name, field in Settings.model_fields.items()}
    if kind:
        described["redis_url"] = f"{kind} ({described['redis_url']})"
    rows = (
        ("*" if value != default[name] else "", PREFIX + name.upper(), str(value), described[name])
        for name, value in shown.items()
    )
    table(("", "variable", "value", "meaning"), rows, empty="")


def version(as_json: Json = False) -> None:
    """Prints the versions of bucketd, Python, and the libraries that matter for a bug report."""
    import platform
    from importlib.metadata import version as installed

    import bucketd

    libraries = ("psycopg", "redis", "uvloop", "httpx", "aiohttp", "tzdata")
    found = {"bucketd": bucketd.__version__, "python": platform.python_version()} | {
        name: installed(name) for name in libraries
    }
    if as_json:
        emit(found)
    else:
        say("\n".join(f"{name} {number}" for name, number in found.items()))

"""SQL in the open: `store/sql/<module>.sql` holds named statements, each used by one function.

A statement begins with `-- name: <word>`, one or more lines of purpose follow as comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(module: str) -> Mapping[str, str]:
    """The statements of one module by name, as text with psycopg's named placeholders. Raises KeyError on an unknown name."""
    text = (files("bucketd.store") / "sql" / f"{module}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)
    found = dict(zip(parts[1::2], (body.strip().rstrip(";") for body in parts[2::2]), strict=True))
    if len(found) != len(parts) // 2:
        raise ValueError(f"expected distinct names in sql/{module}.sql, got one twice")
    return found


def modules() -> list[str]:
    """Names of all SQL modules."""
    return sorted(path.name[:-4] for path in (files("bucketd.store") / "sql").iterdir() if path.name.endswith(".sql"))

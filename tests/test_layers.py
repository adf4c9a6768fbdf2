"""Imports follow the data: store imports nothing of ours, and bucketd and runner meet in it alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Who may import what of ours, by the first dotted name that matches; the longest names stand first.
ALLOWED = {
    "bucketd.store": ("bucketd.store",),
    "bucketd.runner": ("bucketd.runner", "bucketd.store"),
    "bucketd": ("bucketd",),
}
FORBIDDEN = {"bucketd": ("bucketd.runner",)}
PURE = "bucketd.timing"  # no clock, no I/O, nothing else of ours but errors


def sources() -> list[Path]:
    """Every module of ours, by its real path: the links in bucketd/ are not followed."""
    return [path for part in ("bucketd", "runner", "store") for path in sorted((ROOT / part).rglob("*.py"))]


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] == "bucketd" else ["bucketd", *parts])


def imports_of(source: str, module: str, *, package: bool) -> Iterator[str]:
    """Absolute names that a module imports anywhere in it; `from a import b` counts as a and as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: None if package and node.level == 1 else -(node.level - package)]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def violations(source: str, module: str, *, package: bool = False) -> list[str]:
    """Imports that the arrows do not allow to `module`."""
    layer = next(name for name in ALLOWED if within(module, (name,)))
    found = set(imports_of(source, module, package=package))
    wrong = [name for name in found if within(name, ("runner", "store"))]
    for name in found:
        # `from bucketd import store` names `bucketd` too; what matters is what lies below it.
        if name != "bucketd" and within(name, ("bucketd",)):
            allowed = within(name, ALLOWED[layer]) and not within(name, FORBIDDEN.get(layer, ()))
            if not allowed:
                wrong.append(name)
    return sorted(wrong)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    module = module_of(path)
    assert violations(path.read_text(encoding="utf-8"), module, package=path.name == "__init__.py") == []


def test_timing_is_pure() -> None:
    impure = ("asyncio", "time", "socket", "psycopg", "redis", "httpx", "aiohttp", "bucketd.scheduler", "bucketd.cli")
    for path in sorted((ROOT / "bucketd" / "timing").rglob("*.py")):
        names = imports_of(path.read_text(encoding="utf-8"), module_of(path), package=path.name == "__init__.py")
        assert [name for name in names if within(name, impure)] == [], path


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("bucketd.store.runs", "import bucketd.runner"),
        ("bucketd.store.runs", "from bucketd.timing import cron"),
        ("bucketd.store.runs", "from ..timing import cron"),
        ("bucketd.runner.loop", "from bucketd import timing"),
        ("bucketd.runner.loop", "def f():\n    import bucketd.scheduler.node"),
        ("bucketd.scheduler.node", "from bucketd.runner.loop import run"),
        ("bucketd.scheduler.node", "from .. import runner"),
        ("bucketd.client", "import store.keys"),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, source: str) -> None:
    assert violations(source, module)


def test_a_right_arrow_is_not() -> None:
    assert violations("from bucketd.store import keys\nfrom . import confirm", "bucketd.runner.loop") == []
    assert violations("from .timing import cron\nimport bucketd.store.runs", "bucketd.client") == []
    assert violations("from . import keys", "bucketd.store", package=True) == []

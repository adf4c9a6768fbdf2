"""The list of guards fits the product: `make mutate` would say so too, in minutes; this says it with every run of the suite."""

import ast
from collections import Counter
from functools import cache

import pytest

from tests.mutate.build import ROOT
from tests.mutate.guard import MARKER, Guard
from tests.mutate.guards import GUARDS


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the functions at the top of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def markers() -> Counter[tuple[str, str]]:
    """(file, name) of every marker in the product."""
    paths = [
        path
        for part in ("bucketd", "runner", "store")
        for path in (ROOT / part).rglob("*.*")
        if path.suffix in (".py", ".sql", ".lua") and not {"runner", "store"} & set(path.relative_to(ROOT).parts[1:-1])
    ]
    return Counter(
        (path.relative_to(ROOT).as_posix(), name)
        for path in paths
        for name in MARKER.findall(path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_its_text_stands_once_and_its_tests_exist(guard: Guard) -> None:
    source = (ROOT / guard.file).read_text(encoding="utf-8")
    assert guard.taken_from(source) != source
    for test in guard.tests:
        file, _, function = test.partition("::")
        assert function.partition("[")[0] in functions(file), test


def test_each_marker_of_the_product_is_a_guard_and_each_guard_has_one() -> None:
    assert markers() == Counter({(guard.file, guard.marker) for guard in GUARDS})


def test_names_are_unique() -> None:
    assert [name for name, times in Counter(guard.name for guard in GUARDS).items() if times > 1] == []

"""What is wrong with a PromQL expression by the contract of our metrics: names, labels, and values of labels."""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser as promql

from bucketd.store.metrics import ALL, Definition

OF_SCRAPE = {"job", "instance", "namespace", "pod"}  # what Prometheus adds
SUFFIXES = ("_bucket", "_sum", "_count")
BY_NAME = {definition.name: definition for definition in ALL}


def problems(expression: str) -> list[str]:
    """Everything that is wrong with it; empty: nothing. Raises ValueError if it is no PromQL."""
    selectors: list[promql.VectorSelector] = []
    labels: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    promql.walk(promql.parse(expression), visit)
    if not selectors:
        return ["no metric"]
    found = [problem for selector in selectors for problem in _of_selector(selector)]
    known = OF_SCRAPE.union({"le"}, *(_labels(selector.name) for selector in selectors))
    return found + [f"grouping by {label}, which none of its metrics has" for label in sorted(labels - known)]


def _of_selector(selector: promql.VectorSelector) -> Iterator[str]:
    definition = _definition(selector.name)
    if definition is None:
        yield f"no metric {selector.name}"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in definition.labels:
            if matcher.name not in OF_SCRAPE:
                yield f"{selector.name} has no label {matcher.name}"
        elif definition.values and not any(re.fullmatch(matcher.value, value) for value in definition.values):
            yield f"{selector.name}: {matcher.name} is never {matcher.value}"


def _definition(name: str | None) -> Definition | None:
    if name in BY_NAME:
        found = BY_NAME[name]
        return found if found.kind != "histogram" else None  # it is scraped by its parts alone
    for suffix in SUFFIXES:
        if name and name.endswith(suffix) and (found_part := BY_NAME.get(name.removesuffix(suffix))):
            return found_part if found_part.kind == "histogram" else None
    return None


def _labels(name: str | None) -> set[str]:
    definition = _definition(name)
    return set(definition.labels) if definition else set()

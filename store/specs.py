"""Specs: rules in time, stored once however many schedules share one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bucketd.store.operation import Operation, Query
from bucketd.store.statements import statements


class SpecRow(NamedTuple):
    """A rule to be stored: its canonical text, and the interval of an `every`, seconds."""

    rule: str
    kind: str
    every_s: int | None


def intern(specs: Iterable[SpecRow]) -> Operation[dict[str, int]]:
    """Spec ids by rule, stored if they were not.

    Looks before it inserts: an insert that meets its conflict burns a number of the sequence, and puts are many.
    """
    wanted = {spec.rule: spec for spec in specs}
    found: dict[str, int] = dict((yield Query(statements("specs")["find"], {"rules": list(wanted)})))
    missing = [spec for rule, spec in wanted.items() if rule not in found]
    if missing:
        columns = {
            "kinds": [s.kind for s in missing],
            "rules": [s.rule for s in missing],
            "every_s": [s.every_s for s in missing],
        }
        yield Query(statements("specs")["intern"], columns)
        found |= dict((yield Query(statements("specs")["find"], {"rules": [s.rule for s in missing]})))
    return found


def rules(spec_ids: Iterable[int]) -> Operation[dict[int, str]]:
    """The rules of some specs, by id."""
    return dict((yield Query(statements("specs")["rules"], {"ids": list(spec_ids)})))

"""A guard of the product, and the switch that takes it away in a test build."""

from __future__ import annotations

import re
from dataclasses import dataclass

MARKER = re.compile(r"(?:#|--) guard: ([a-z0-9-]+)")


class Misplaced(Exception):
    """The product does not hold a guard's text exactly once: it was edited, and the switch has to follow."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. Its text carries the marker `guard: <name>`, by which a reader of the product sees what leans on it."""

    name: str
    file: str  # from the top of the repository
    text: str  # stands there exactly once
    instead: str  # what a test build has in its place
    invariant: str  # of the design, I1 .. I13, in a few words
    why: str  # what goes wrong without it
    tests: tuple[str, ...]  # node ids: each of them must fail by an assertion; without [..] one of its cases must

    def __post_init__(self) -> None:
        if MARKER.findall(self.text) != [self.marker]:
            raise ValueError(f"expected the marker 'guard: {self.marker}' once in the text of {self.name}")

    @property
    def marker(self) -> str:
        """The place in the product. A guard can go wrong in more than one way: `name/way` has the marker `name`."""
        return self.name.partition("/")[0]

    def taken_from(self, source: str) -> str:
        """The file without the guard. Raises Misplaced."""
        found = source.count(self.text)
        if found != 1:
            raise Misplaced(f"{self.name}: expected its text once in {self.file}, found it {found} times")
        return source.replace(self.text, self.instead)

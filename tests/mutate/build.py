"""Test builds: copies of the tree in which one guard at a time is taken away. The checkout is only read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.mutate.guard import Guard

ROOT = Path(__file__).resolve().parents[2]


def copy_checkout(into: Path) -> None:
    """Every file that git knows or would add, links as links. Raises CalledProcessError outside a checkout."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name in sorted({os.fsdecode(part) for part in listed.split(b"\0") if part}):
        if os.path.lexists(ROOT / name):  # else it is deleted and not committed yet
            place = into / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place, follow_symlinks=False)


def without(guard: Guard, whole: Path, into: Path) -> None:
    """A copy of the build `whole`, compiled files and all, that lacks one guard. Raises Misplaced."""
    switched = guard.taken_from((whole / guard.file).read_text(encoding="utf-8"))
    shutil.copytree(whole, into, symlinks=True)
    (into / guard.file).write_text(switched, encoding="utf-8")

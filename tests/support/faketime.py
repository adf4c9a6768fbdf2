"""A wall clock that jumps under a running process: libfaketime, preloaded, reads the jump from a file.

Only the wall clock is faked: what counts from boot goes on as it is, as on a machine whose clock is set. Two limits of the library:
`time.sleep` fails in such a process (EINVAL; it mixes the clocks up), which ours never call; and a jump shows within CACHE_S.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bucketd.embedded.redis import _binary

CACHE_S = 1  # the library reads the file again that often; whole seconds
HOUR_S = 3_600


def library() -> Path | None:
    """The library for programs with threads, of the Debian package faketime; None: it is not there."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def missing() -> str | None:
    """Why clocks cannot jump here; None: they can."""
    return None if library() is not None else "no libfaketime: the Debian package faketime (make system) has it"


def needed() -> None:
    """Skips the test where the library is missing (fails it in CI)."""
    if why := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


class FakeClock:
    """The wall clock of processes that are started with `env`; right at first. Its file lies in `directory`."""

    def __init__(self, directory: Path, name: str = "clock", *, cached: bool = True) -> None:
        """`cached`: a jump shows within CACHE_S; else at once, for a process whose every look at the clock may read a file."""
        self._cache = {"FAKETIME_CACHE_DURATION": str(CACHE_S)} if cached else {"FAKETIME_NO_CACHE": "1"}
        self._file = directory.resolve() / f"{name}.faketime"
        self._directory = directory.resolve() / f"{name}-servers"
        self.jump(0)

    @property
    def env(self) -> Mapping[str, str]:
        """Environment of a process that is to live by this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            **self._cache,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # its name in older releases
        }

    def jump(self, to_s: int) -> None:
        """The clock shows this many seconds more (or less) than the machine's."""
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{to_s:+d}\n")
        whole.replace(self._file)

    @contextmanager
    def redis(self) -> Iterator[None]:
        """Inside, `start_redis` starts a server that lives by this clock."""
        self._directory.mkdir(exist_ok=True)
        starter = self._directory / "redis-server"
        words = ["env", *(f"{name}={value}" for name, value in self.env.items()), _binary()]
        if not starter.exists():
            starter.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            starter.chmod(0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{self._directory}{os.pathsep}{path}"
        assert shutil.which("redis-server") == str(starter)
        try:
            yield
        finally:
            os.environ["PATH"] = path

"""A small file system of its own for a server's data, so that its disk can be full without filling the machine's. Wants root, on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

FILLER = "filler"
PIECE = 1 << 16


@cache
def missing() -> str | None:
    """Why this machine cannot mount one, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "wants root on Linux, to mount a tmpfs"
    with TemporaryDirectory() as directory:
        disk = Disk(Path(directory), 1)
        try:
            disk.mount()
        except subprocess.CalledProcessError as error:
            return f"no tmpfs can be mounted here: {error.stderr.strip()}"
        disk.unmount()
    return None


class Disk:
    """A tmpfs of `megabytes` over a directory, which must be there."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        self.directory = directory
        self._megabytes = megabytes

    def mount(self) -> None:
        """CalledProcessError where that is not allowed."""
        _run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=0711", "tmpfs", str(self.directory))

    def unmount(self) -> None:
        """Whoever still has files open there keeps them until he closes them."""
        _run("umount", "--lazy", str(self.directory))

    def fill(self) -> None:
        """Takes all that is free, to the last block."""
        with (self.directory / FILLER).open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(PIECE))
            except OSError:
                pass

    def free(self) -> None:
        """Gives it back."""
        (self.directory / FILLER).unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        """What can still be written."""
        status = os.statvfs(self.directory)
        return status.f_bavail * status.f_frsize


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)

"""What a process tells its supervisor by the sd_notify protocol (systemd, and others that speak it): ready, still turning, stopping.

A keep-alive comes from a task of the event loop, so it says what /healthz says: a loop that hangs sends none, and systemd ends the
process after WatchdogSec= and starts it anew. Without a supervisor that asks for it, all of this does nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Self

BEATS = 3  # in the time after which silence is death: two may be lost on a crowded machine


class Supervisor:
    """One that listens at `address` and expects a word each `watchdog_s`; None: there is none, or it expects none."""

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        self._address = address
        self._watchdog_s = watchdog_s

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Self:
        """The one that started the process `pid`. What it asked of another process is no word for this one."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        mine = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        asked = mine and microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        return cls(environ.get("NOTIFY_SOCKET") or None, int(microseconds) / 1e6 if asked else None)

    @classmethod
    def present(cls) -> Self:
        """The one that started this process."""
        return cls.of(os.environ, os.getpid())

    def ready(self) -> None:
        """The stores are open and the work begins."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """A graceful stop has begun."""
        self._tell("STOPPING=1")

    async def keep_alive(self) -> None:
        """Says that the loop turns, until it is cancelled; returns at once where nobody asked for it."""
        while self._address and self._watchdog_s:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / BEATS)

    def _tell(self, word: str) -> None:
        """A datagram that is never waited for: a supervisor that does not listen must not hold up the work."""
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(word.encode(), name)
        except OSError:
            pass

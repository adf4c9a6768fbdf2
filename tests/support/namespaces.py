"""A host of its own on one machine: a network namespace with one cable, which can be pulled. Wants root and iproute2.

What is pulled is silent: packets vanish, no connection is reset. The kernel knows nothing of it, as of a machine that lost its power.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from functools import cache
from types import TracebackType
from typing import Literal, Self, TypeAlias

import pytest

Towards: TypeAlias = Literal["host", "machine"]
BLOCKS = 2**15  # of four addresses each, in 198.18.0.0/15, which is for tests of networks (RFC 2544)
WAIT_S = 20


class Host:
    """An async context manager: it is there inside. `address`: of this machine, as seen from the host."""

    def __init__(self) -> None:
        block = secrets.randbelow(BLOCKS) * 4
        self.address, self._own = _address(block + 1), _address(block + 2)
        self.name = f"bucketd-{block:x}"
        self._cable = f"bd{block:x}"

    @property
    def under(self) -> tuple[str, ...]:
        """Before a command: it runs there."""
        return ("ip", "netns", "exec", self.name)

    def pull(self, on: bool = True) -> None:
        """The cable is out, or in again."""
        _run("ip", "link", "set", self._cable, "down" if on else "up")

    def swallow(self, towards: Towards, on: bool = True) -> None:
        """What is sent that way vanishes; the other way goes on."""
        command, iface = ((*self.under, "nft"), "eth") if towards == "host" else (("nft",), self._cable)
        if on:
            _run(*command, "add", "table", "inet", self.name)
            _run(*command, f"add chain inet {self.name} arriving {{ type filter hook input priority 0 ; }}")
            _run(*command, f"add rule inet {self.name} arriving iifname {iface} counter drop")
        else:
            _run(*command, "delete", "table", "inet", self.name)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._close)

    def _open(self) -> None:
        _run("ip", "netns", "add", self.name)
        try:
            _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth", "netns", self.name)
            _run("ip", "address", "add", f"{self.address}/30", "dev", self._cable)
            _run("ip", "link", "set", self._cable, "up")
            _run("ip", "-n", self.name, "address", "add", f"{self._own}/30", "dev", "eth")
            _run("ip", "-n", self.name, "link", "set", "eth", "up")
            _run("ip", "-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Also where some of it is not there. A process that runs there keeps the namespace, but not its cable."""
        for command in (
            ("ip", "link", "delete", self._cable),
            ("ip", "netns", "delete", self.name),
            *([("nft", "delete", "table", "inet", self.name)] if shutil.which("nft") else []),
        ):
            subprocess.run(command, capture_output=True, check=False, timeout=WAIT_S)


@cache
def missing() -> str | None:
    """Why there can be no such host here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    if shutil.which("ip") is None:
        return "no ip: the Debian package iproute2 (make system) has it"
    try:
        host = Host()
        host._open()
        host._close()
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces: {getattr(error, 'stderr', error)}".strip()
    return None


@cache
def missing_filter() -> str | None:
    """Why packets cannot vanish in one direction."""
    if why := missing():
        return why
    if shutil.which("nft") is None:
        return "no nft: the Debian package nftables (make system) has it"
    tried = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False, timeout=WAIT_S)
    return f"no packet filter: {tried.stderr.strip()}" if tried.returncode else None


def needed(why: str | None) -> None:
    """Skips the test where something is missing (fails it in CI)."""
    if why is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


def _address(offset: int) -> str:
    return f"198.{18 + (offset >> 16)}.{offset >> 8 & 255}.{offset & 255}"


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, text=True, timeout=WAIT_S)

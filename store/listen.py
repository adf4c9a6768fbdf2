"""Where a process listens for whoever watches it: host and port as they stand in a setting."""

from __future__ import annotations

from typing import NamedTuple, Self


class Listen(NamedTuple):
    """An address to bind. Port 0: the system picks one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `host:port`, `[v6 address]:port` or `:port` (every address). Raises ValueError."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if (
            not colon
            or not port.isascii()
            or not port.isdigit()
            or int(port) > 65_535
            or (":" in bare and bare == host)
        ):
            raise ValueError(f"expected host:port, [v6 address]:port or :port, got {text!r}")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

"""The target of `bench.calls`, a process of its own: `python -m bench.call_target`.

The one of `bench.target`, but it keeps nothing of what it gets, for there are hundreds of thousands of requests: it counts them,
and those that are signed. Command: `count` -> [requests, signed].
"""

from __future__ import annotations

import json

import uvloop

from bench.target import Connection, Request, serve


class Counting(Connection):
    """One connection."""

    requests: list[Request] = []  # noqa: RUF012 - stays empty
    came = 0
    signed = 0

    def _begin(self, head: bytes) -> None:
        super()._begin(head)
        self.requests.clear()
        Counting.came += 1
        Counting.signed += b"\r\nwebhook-signature: v1," in head.lower()


def answer(line: str) -> str:
    """The answer to one command."""
    if line.split() != ["count"]:
        raise ValueError(f"expected count, got {line!r}")
    return json.dumps([Counting.came, Counting.signed])


if __name__ == "__main__":
    uvloop.run(serve(Counting, answer))

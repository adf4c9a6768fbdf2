"""Why a request is not let in."""

from __future__ import annotations


class Refused(Exception):
    """Answer with this status. bucketd shows the reason as the run's failure, and tries none of them again but 425 (see signed)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

"""Named points where a test ends the process at once, as a power cut would: BUCKETD_TEST_KILL_AT names one of them.

They stand where one step is done and the next is not: what a crash there leaves behind is what invariants I1, I2, I6 and I7 are
about. Reached once a batch, never once a fire.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, TypeAlias

Point: TypeAlias = Literal["before_confirm", "after_commit", "after_response", "after_result"]
_KILL_AT = os.environ.get("BUCKETD_TEST_KILL_AT", "")


def reach(point: Point) -> None:
    """The process is at this point."""
    if point == _KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)

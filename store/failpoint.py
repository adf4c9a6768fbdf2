"""Named points where a test ends the process at once, as a power cut would: BUCKETD_TEST_KILL_AT names one of them.

They stand where one step is done and the next is not: what a crash there leaves behind is what invariants I1, I2, I3 and I6 to I9
are about. Reached once a batch, never once a fire. `after_drain:20` ends the process when it is there for the twentieth time.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, TypeAlias

RunnerPoint: TypeAlias = Literal["before_confirm", "after_commit", "after_response", "after_result"]
NodePoint: TypeAlias = Literal["before_plan", "after_plan", "after_drain", "in_take_over", "before_settle"]
Point: TypeAlias = RunnerPoint | NodePoint

_KILL_AT, _, _times = os.environ.get("BUCKETD_TEST_KILL_AT", "").partition(":")
_left = int(_times or 1)


def reach(point: Point) -> None:
    """The process is at this point."""
    global _left
    if point == _KILL_AT:
        _left -= 1
        if not _left:
            os.kill(os.getpid(), signal.SIGKILL)

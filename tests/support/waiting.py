"""The only way a test waits for something it has no signal for."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

POLL_S = 0.02
T = TypeVar("T")


@overload
async def wait_until(condition: Callable[[], Awaitable[T]], timeout_s: float, what: str) -> T: ...
@overload
async def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T: ...
async def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """The first true value of `condition` (plain or async), asked each 20 ms, and once more when the time is over.

    AssertionError that names `what` after `timeout_s`.
    """
    end = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= end
        answer = condition()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if late:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {value!r}")
        await asyncio.sleep(POLL_S)

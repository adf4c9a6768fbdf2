"""Tells the cluster by Redis that something was written. A courtesy: nodes look once a second anyway, so no call fails by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from bucketd.store.clock import monotonic
from bucketd.store.config import Settings
from bucketd.store.keys import Keys
from bucketd.store.log import event, warn

if TYPE_CHECKING:
    import redis
    import redis.asyncio

Signal: TypeAlias = Literal["nudge", "wake"]
# A Redis that is down would cost each call its connect time-out; so it is left alone for a while.
PAUSE_S = 5.0


class _Health:
    """When to leave Redis alone; one log line for a failure and one for the recovery."""

    def __init__(self) -> None:
        self.failed_at: float | None = None
        self._since = 0.0

    def may_try(self) -> bool:
        return self.failed_at is None or monotonic() - self.failed_at >= PAUSE_S

    def failed(self, error: Exception) -> None:
        if self.failed_at is None:
            self._since = monotonic()
            warn("nudge_failed", error=type(error).__name__)
        self.failed_at = monotonic()

    def succeeded(self) -> None:
        if self.failed_at is not None:
            event("nudge_recovered", after_s=monotonic() - self._since)
            self.failed_at = None


class Publisher:
    """Publishes on the channels of store.keys; does nothing without a Redis URL."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._health = _Health()
        self._redis: redis.Redis | None = None

    def publish(self, signals: tuple[Signal, ...]) -> None:
        """Never raises."""
        settings = self._settings()
        if not signals or not settings.redis_url.get_secret_value() or not self._health.may_try():
            return
        try:
            if self._redis is None:
                from bucketd.store.redis_sync import make_sync_redis  # slow to import, and often not needed

                self._redis = make_sync_redis(settings, read_timeout_s=settings.redis_connect_timeout_s)
            for channel in channels(settings, signals):
                self._redis.publish(channel, b"")
            self._health.succeeded()
        except Exception as error:  # a malformed URL, too: the write is committed, and it counts
            self._health.failed(error)

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()
            self._redis = None


class AsyncPublisher:
    """`Publisher` for one event loop."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._health = _Health()
        self._redis: redis.asyncio.Redis | None = None

    async def publish(self, signals: tuple[Signal, ...]) -> None:
        """Never raises, but for a cancellation."""
        settings = self._settings()
        if not signals or not settings.redis_url.get_secret_value() or not self._health.may_try():
            return
        try:
            if self._redis is None:
                from bucketd.store.redis_client import make_redis

                self._redis = make_redis(settings, connections=4)
            for channel in channels(settings, signals):
                await self._redis.publish(channel, b"")
            self._health.succeeded()
        except Exception as error:
            self._health.failed(error)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()
            self._redis = None


def channels(settings: Settings, signals: tuple[Signal, ...]) -> list[str]:
    """Channel names of signals."""
    keys = Keys(settings.redis_prefix)
    return [keys.nudge if signal == "nudge" else keys.wake for signal in signals]

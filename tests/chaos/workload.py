"""What the play is about: schedules of every kind, a target that answers each as it deserves, and a client that goes on writing.

Everything ends (`ends_at`) so long before the end of the play that its jitter is over by then.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from bucketd.client import AsyncClient
from tests.chaos.journal import Journal
from tests.chaos.stage import Stage
from tests.chaos.timings import Planned
from tests.support.edit_model import Timing
from tests.support.target import Reply, Request

POLICIES = ("run_once", "skip", "catch_up")
OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_running")
LONG_JITTER_S, SHORT_JITTER_S = 45, 20
SLOW_TAIL_S = 25  # runs that must not overlap stop this long before the end: what has queued up is worked off by then
FAR_S = 50 * 86_400
SIGNED = {"plain": b"the key of the plain target, 32 b", "bulk": b"another one, of the bulk target, x"}
PATHS = ("plain", "bulk", "flaky", "slow", "refusing")


def secret(target: str) -> str:
    """As the client takes it."""
    return "whsec_" + base64.b64encode(SIGNED[target]).decode()


def answer(request: Request) -> Reply:
    """What a request gets is a function of what it carries."""
    path = request.path.strip("/")
    draw = zlib.crc32(str(request.headers.get("webhook-id", "")).encode())
    if path == "flaky":  # one run in five, and of these one in four again: its target is well enough for the breaker
        return Reply(503 if draw % 5 == 0 and request.body["attempt"] <= 1 + (draw % 20 == 0) else 200)
    if path == "slow":
        return Reply(delay_s=0.3 + draw % 1000 / 300)  # up to 3.6 s
    return Reply(422 if path == "refusing" else 200)


async def put_targets(stage: Stage) -> None:
    """All at the one server, through the proxy; what answers with an error at first is tried again soon."""
    root = stage.link("runners", "target").url.rsplit("/", 1)[0]
    more: dict[str, dict[str, Any]] = {"bulk": {"batch_max": 20, "batch_linger_ms": 50}, "flaky": {"max_attempts": 8}}

    for path in PATHS:

        async def put(client: AsyncClient, path: str = path) -> None:
            await client.targets.put(
                path,
                f"{root}/{path}",
                timeout_s=10,
                headers={"x-target": path},
                **{**QUICK_RETRY, **more.get(path, {})},
            )
            if path in SIGNED:
                await client.targets.rotate_secret(path, secret(path))

        await stage.journal.targets(put)


QUICK_RETRY = {"retry_base_s": 0.5, "retry_cap_s": 4, "max_attempts": 12}


@dataclass(frozen=True)
class Workload:
    """Everything falls due in [begin_s, end_s), whole seconds. `scale` 1: about 40 fires a second."""

    seed: int
    begin_s: int
    end_s: int
    scale: float = 1.0

    def schedules(self) -> list[Planned]:
        """Those that are there from the beginning."""
        random = Random(self.seed)
        return [
            *self._pulses(),
            *self._beats(),
            *self._crons(),
            *self._once(random),
            *self._troubled(),
            *self._edited(random),
        ]

    def _planned(self, kind: str, n: int, timing: Timing, *, tail_s: int = 0, **options: Any) -> Planned:
        bounds = {"starts_at": _utc(self.begin_s), "ends_at": _utc(self.end_s - tail_s - timing.jitter_s)}
        if timing.every_s is None and timing.cron is None:
            bounds = {}
        return Planned(kind, f"{kind}-{n:03}", timing, {"target": "plain", **bounds, **options})

    def _pulses(self) -> Iterator[Planned]:
        """They show how late the cluster is at each second."""
        for n in range(self._count(10)):
            yield self._planned("pulse", n, Timing(every_s=1))

    def _beats(self) -> Iterator[Planned]:
        """Each policy for what is late, by several thresholds, singly and in batches."""
        for n in range(self._count(150)):
            options: dict[str, Any] = {"misfire": POLICIES[n % 3], "misfire_threshold_s": (5, 20, 60)[n // 3 % 3]}
            if n % 7 == 0:
                options["deadline_s"] = 30
            yield self._planned(
                "beat", n, Timing(every_s=10, phase_s=n % 10), target="bulk" if n % 2 else "plain", **options
            )

    def _crons(self) -> Iterator[Planned]:
        """By minute, where everybody wants to run at once, and spread by jitter."""
        for n in range(self._count(60)):
            jitter_s = (0, SHORT_JITTER_S, LONG_JITTER_S)[n % 3]
            yield self._planned(
                "cron",
                n,
                Timing(cron=("* * * * *", "*/2 * * * *")[n % 2], jitter_s=jitter_s),
                misfire=POLICIES[n // 3 % 3],
            )

    def _once(self, random: Random) -> Iterator[Planned]:
        """One-shots, most at whole seconds with company."""
        for n in range(self._count((self.end_s - self.begin_s) * 2)):
            yield self._planned("once", n, Timing(phase_s=random.randrange(self.begin_s, self.end_s)))

    def _troubled(self) -> Iterator[Planned]:
        """Targets that fail at first, that refuse, and that are slower than the next occurrence."""
        for n in range(self._count(14)):
            yield self._planned("flaky", n, Timing(every_s=7, phase_s=n % 7), target="flaky", tail_s=SLOW_TAIL_S)
        for n in range(self._count(4)):
            yield self._planned("refused", n, Timing(every_s=15, phase_s=n), target="refusing")
        for n in range(self._count(16)):
            timing = Timing(every_s=3, phase_s=n % 3)
            yield self._planned("meet", n, timing, target="slow", overlap=OVERLAPS[n % 4], tail_s=SLOW_TAIL_S)
        for n in range(self._count(6)):
            timing = Timing(every_s=FAR_S, phase_s=(self.end_s + 86_400) % FAR_S)
            yield Planned("asked", f"asked-{n:03}", timing, {"target": "plain"})

    def _edited(self, random: Random) -> Iterator[Planned]:
        """These are written to all the time."""
        for n in range(self._count(40)):
            yield self.edited(n, random)

    def edited(self, n: int, random: Random) -> Planned:
        """The n-th of them with a timing that is drawn."""
        jitter_s = random.choice((0, 0, 0, SHORT_JITTER_S))
        timing = Timing(every_s=random.randint(2, 12), phase_s=0, jitter_s=jitter_s)
        if random.random() < 0.2:
            timing = Timing(cron="* * * * *", jitter_s=jitter_s)
        elif timing.every_s is not None:
            timing = Timing(timing.every_s, phase_s=random.randrange(timing.every_s), jitter_s=jitter_s)
        options = {"starts_at": _utc(self.begin_s), "ends_at": _utc(self.end_s - SHORT_JITTER_S)}
        return Planned("edited", f"edited-{n:03}", timing, {"target": "plain", "misfire": POLICIES[n % 3], **options})

    def _count(self, at_full: float) -> int:
        return max(4, round(at_full * self.scale))

    async def write(self, stage: Stage, journal: Journal) -> None:
        """Edits, pauses, resumes, deletes, puts again and triggers until shortly before the end; then resumes what is paused."""
        random = Random(self.seed + 1)
        while stage.now() < self.end_s - 2 * SLOW_TAIL_S:
            await asyncio.sleep(random.uniform(0.1, 0.5) / self.scale)
            await self._write_once(journal, random)

    async def _write_once(self, journal: Journal, random: Random) -> None:
        if random.random() < 0.15:
            asked = journal.living(("asked", f"asked-{random.randrange(self._count(6)):03}"))
            if asked is not None:
                await journal.trigger(asked)
            return
        n = random.randrange(self._count(40))
        life = journal.living(("edited", f"edited-{n:03}"))
        if life is None or random.random() < 0.5:
            await journal.put(self.edited(n, random))
        elif life.history.paused:
            await journal.resume(life)
        elif random.random() < 0.7:
            await journal.pause(life)
        else:
            await journal.delete(life)


def _utc(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)

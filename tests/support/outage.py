"""A life of schedules with an outage in it: what is put before, what the client changes in the middle, what has to follow.

The return is at second 2 of a minute, so that no slot's verdict hangs on how many seconds a process takes to start: the newest
missed minutes are over their threshold, the slots of the minute itself are not, and no bound of a deadline or of the catch-up
window is crossed in the 38 s after it.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bucketd.client import At, Cron, Every, ScheduleInput, at, cron, every
from bucketd.store.fires import FAR, encode_message, members, tail
from tests.support.cluster import TARGET, Cluster
from tests.support.load import utc
from tests.support.outage_oracle import Outcome, Policy, Rule, Stretch, outcomes

DAY_S = 86_400
POLICIES = ("run_once", "skip", "catch_up")
MESSAGE = 100  # fires of a partition in a message at most
MINUTE = Rule(every_s=60, phase=15)
MINUTE_THRESHOLD_S = 40  # the last missed minute is 47 s late at the return
QUARTER = Rule(every_s=900, phase=60)
LONG_JITTER_S, SHORT_JITTER_S = 300, 2


def quarter(misfire: str) -> Rule:
    """A slot 2 s before the return, or 13 s after it. catch_up: before, for the window of a day ends there too."""
    return QUARTER if misfire == "catch_up" else Rule(every_s=900, phase=75)


class Story:
    """One schedule: what it is put as, the stretches of its life, and whether it can have rows at the end."""

    def __init__(self, name: str, rule: Rule, policy: Policy, jitter_s: int = 0) -> None:
        self.name = name
        self.rule = rule
        self.policy = policy
        self.jitter_s = jitter_s
        self.id = UUID(int=0)
        self.stretches: list[Stretch] = []
        self.ended = False  # paused or deleted

    def begin(self, cluster: Cluster, rule: Rule, jitter_s: int = 0) -> None:
        """Puts it as it is from now on: a new schedule, or an edit."""
        now_s = cluster.now()
        self.close(now_s)
        made = cluster.client.schedules.put(self.name, **self._columns(rule, jitter_s))
        self.began(cluster, made.id, rule, now_s)

    def began(self, cluster: Cluster, id: UUID, rule: Rule, now_s: float) -> None:
        """Notes a write of its timing."""
        self.id = id
        offset_s = cluster.one("select jitter_offset_s from bucketd.schedules where id = %s", id)
        self.stretches.append(Stretch(rule, offset_s, now_s, float("inf")))

    def close(self, now_s: float) -> None:
        """Its present timing ends."""
        if self.stretches:
            last = self.stretches.pop()
            self.stretches.append(Stretch(last.rule, last.jitter_s, last.from_s, min(last.until_s, now_s)))

    def input(self) -> ScheduleInput:
        """For a bulk put."""
        return ScheduleInput(name=self.name, **self._columns(self.rule, self.jitter_s))

    def expected(self, *, judged_s: float, through_s: int, oldest_s: float) -> list[Outcome]:
        """Rows that it must have, of what was due up to `through_s`."""
        if self.ended:
            return []
        lived = [Stretch(s.rule, s.jitter_s, s.from_s, min(s.until_s, through_s + 1)) for s in self.stretches]
        return outcomes(lived, self.policy, judged_s=judged_s, through_s=through_s, oldest_s=oldest_s)

    def _columns(self, rule: Rule, jitter_s: int) -> dict[str, Any]:
        policy = self.policy
        return {
            "timing": timing(rule), "target": TARGET, "misfire": policy.misfire, "deadline_s": policy.deadline_s,
            "misfire_threshold_s": policy.threshold_s, "jitter_s": jitter_s, "overlap": "allow",
        }  # fmt: skip


def timing(rule: Rule) -> At | Cron | Every:
    """A rule as the client takes it."""
    if rule.every_s:
        return every(rule.every_s, phase=rule.phase)
    return cron(rule.cron, rule.tz) if rule.cron else at(utc(rule.at_s))


class Outage:
    """Away from `begin_s` to `end_s`; `middle_s` is where the client writes."""

    def __init__(self, cluster: Cluster, length_s: int) -> None:
        tomorrow = datetime.fromtimestamp(time.time(), UTC).replace(hour=9, minute=1, second=2, microsecond=0)
        while tomorrow.timestamp() - length_s < time.time():
            tomorrow += timedelta(days=1)
        self.cluster = cluster
        self.end = tomorrow
        self.end_s = int(tomorrow.timestamp())
        self.begin_s = (
            self.end_s - length_s + 23
        )  # second 25 of its minute, as in the middle: no slot for half a minute
        self.middle_s = self.begin_s + length_s // 120 * 60
        self.through_s = self.end_s - 3  # last second of the minute before: it is judged as a whole up to there
        self.queued = 4_400 if length_s <= 3 * DAY_S else 500  # fires of a schedule: 3 days fit, of weeks the oldest do
        self.stories: list[Story] = []

    @property
    def oldest_s(self) -> float:
        """Rows below are past retention."""
        return self.end.replace(hour=0, minute=0, second=0).timestamp() - 30 * DAY_S

    def turn_to(self, at_s: float) -> None:
        """Moves the clock; what runs must not mind."""
        self.cluster.turn_clock(at_s - time.time())

    def slots_after(self, story: Story, for_s: int) -> list[int]:
        """What has to fire on time again within `for_s` of the return."""
        last = story.stretches[-1]
        due_s = self.through_s + 1 - last.jitter_s
        slots = last.rule.slots(due_s, self.end_s + for_s - 1 - last.jitter_s)
        return [] if story.ended else slots

    def steady(self) -> Iterator[Story]:
        """Each policy with each timing and deadline: none, one below the age of the newest missed slot, one above."""
        day, long_ago = self.end.day, self.end - timedelta(days=35)
        rules: dict[str, tuple[Rule, int, tuple[int | None, ...]]] = {
            "minute": (MINUTE, MINUTE_THRESHOLD_S, (None, 30, 3_630)),
            "hourly": (Rule(cron="1 * * * *"), 60, (None, 1_800, 9_000)),
            "daily": (Rule(cron="30 7 * * *"), 60, (None, 3_600, 90_000)),
            "daily-new-york": (Rule(cron="30 3 * * *", tz="America/New_York"), 60, (None,)),
            "daily-in-a-minute": (Rule(cron="1 9 * * *"), 60, (None, 3_600, 100_000)),
            "monthly": (Rule(cron=f"30 7 {day} * *"), 60, (None, 3_600, 864_000)),
            "monthly-past-retention": (Rule(cron=f"30 7 {long_ago.day} * *"), 60, (None,)),
            "yearly-past-retention": (Rule(cron=f"30 7 {long_ago.day} {long_ago.month} *"), 60, (None,)),
            "once": (Rule(at_s=self.middle_s + 615), 60, (None, 600)),
        }
        for misfire in POLICIES:
            for name, (rule, threshold_s, deadlines) in {
                **rules, "quarter": (quarter(misfire), 60, (None, 600, 3_000))
            }.items():  # fmt: skip
                for deadline_s in deadlines:
                    yield Story(f"{name}-{misfire}-{deadline_s}", rule, Policy(misfire, threshold_s, deadline_s))

    def jittered(self) -> Iterator[Story]:
        """These are put one by one, until the jitter drawn is one whose due instants keep clear of the return."""
        for misfire in POLICIES:
            for name in ("jitter", "jitter-edited", "jitter-edited-twice"):
                yield Story(f"{name}-{misfire}", QUARTER, Policy(misfire), LONG_JITTER_S)
            yield Story(f"hourly-jitter-{misfire}", Rule(cron="1 * * * *"), Policy(misfire), LONG_JITTER_S)

    @staticmethod
    def minute(misfire: str) -> Policy:
        """Of schedules beside the first ones that catch up: an hour of minutes is enough for them."""
        return Policy(misfire, MINUTE_THRESHOLD_S, 3_645 if misfire == "catch_up" else None)

    def changing(self) -> Iterator[Story]:
        """The client changes them in the middle."""
        for misfire in POLICIES:
            minute = self.minute(misfire)
            for name in ("paused", "resumed", "deleted", "edited-to-quarter"):
                yield Story(f"{name}-{misfire}", MINUTE, minute)
            yield Story(f"edited-to-minute-{misfire}", quarter(misfire), minute)

    def prepare(self) -> None:
        """Schedules that were there before."""
        cluster = self.cluster
        steady, jittered = [*self.steady(), *self.changing()], list(self.jittered())
        now_s = cluster.now()
        made = cluster.client.schedules.put_many([story.input() for story in steady])
        for story, result in zip(steady, made, strict=True):
            assert result.id is not None, result
            story.began(cluster, result.id, story.rule, now_s)
        for story in jittered:
            while not story.stretches or not 60 <= story.stretches[-1].jitter_s <= 240:
                if story.stretches:
                    cluster.client.schedules.delete(story.name)
                    story.stretches.clear()
                story.begin(cluster, story.rule, story.jitter_s)
        self.stories = [*steady, *jittered]
        assert cluster.now() < self.begin_s + 30, "the machine was too slow to be ready before the first slot"

    def edit(self) -> None:
        """What the client writes while nobody looks."""
        self.turn_to(self.middle_s)
        schedules = self.cluster.client.schedules
        by_name = {story.name: story for story in self.stories}
        for misfire in POLICIES:
            for name in ("paused", "resumed"):
                schedules.pause(f"{name}-{misfire}")
                by_name[f"{name}-{misfire}"].ended = True
            schedules.delete(f"deleted-{misfire}")
            by_name[f"deleted-{misfire}"].ended = True
            by_name[f"edited-to-quarter-{misfire}"].begin(self.cluster, quarter(misfire))
            by_name[f"edited-to-minute-{misfire}"].begin(self.cluster, MINUTE)
            for name in ("jitter-edited", "jitter-edited-twice"):
                by_name[f"{name}-{misfire}"].begin(self.cluster, QUARTER, SHORT_JITTER_S)
            self.stories.append(Story(f"born-{misfire}", MINUTE, self.minute(misfire)))
            self.stories[-1].begin(self.cluster, MINUTE)
        self.turn_to((self.middle_s + self.end_s) // 120 * 60 + 25)
        for misfire in POLICIES:
            by_name[f"jitter-edited-twice-{misfire}"].begin(self.cluster, QUARTER, LONG_JITTER_S)
            resumed = by_name[f"resumed-{misfire}"]
            resumed.ended, resumed.stretches = False, []
            schedules.resume(resumed.name)
            resumed.began(self.cluster, resumed.id, MINUTE, self.cluster.now())

    def fill_queues(self) -> None:
        """What a scheduler that worked all the time has put into the queues, oldest first, up to where they were full."""
        waiting: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for story in self.stories:
            waiting[story.id.bytes[15]] += list(self._fires(story))[: self.queued]
        messages: list[tuple[int, int, list[bytes]]] = []
        for partition, fires in waiting.items():
            fires.sort()
            for n in range(0, len(fires), MESSAGE):
                piece = fires[n : n + MESSAGE]
                messages.append((piece[0][0], partition, [fire for _, fire in piece]))
        counts: defaultdict[str, int] = defaultdict(int)
        pipeline = self.cluster.redis.pipeline(transaction=False)
        for _, partition, packed in sorted(messages):
            queue = self.cluster.keys.queue(partition)
            counts[queue] += len(packed)
            pipeline.xadd(queue, {"m": encode_message(partition, packed), "c": counts[queue], "n": len(packed)})
        pipeline.execute()

    def _fires(self, story: Story) -> Iterator[tuple[int, bytes]]:
        """(due, fire) of all its slots, by the timing version that made them."""
        for version, stretch in enumerate(story.stretches, self._first_version(story)):
            slots = stretch.rule.slots(stretch.from_s, min(stretch.until_s, self.through_s + 1))
            for n, at_s in enumerate(slots, 1):
                shared = tail(at_s, FAR, slots[n] - at_s if n < len(slots) else FAR)
                (fire,) = members(story.id.bytes + version.to_bytes(4, "big") + bytes(2), shared)
                yield at_s + stretch.jitter_s, fire

    def _first_version(self, story: Story) -> int:
        """The one that its first stretch had."""
        version = self.cluster.sql("select timing_version from bucketd.schedules where id = %s", story.id)
        return int(version[0][0]) - len(story.stretches) + 1 if version else 1

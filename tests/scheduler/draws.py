"""Random draws: what is written to a schedule next, and when."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple
from uuid import UUID

from tests.support.edit_model import History, Timing

PARTITIONS = 32  # in use, two a shard
EVERY_S = (7, 20, 30, 45, 45, 60, 60, 75, 90, 90)
CRONS = ("* * * * *", "*/2 * * * *", "1-59/2 * * * *", "*/3 * * * *")
UNJITTERED = CRONS[:2]
ACTIONS = {
    "absent": {"put": 1},
    "active": {
        "retime": 8, "jitter": 4, "phase": 4, "twice": 2, "same": 2, "other": 4, "pause": 8, "blink": 2, "delete": 2, "replace": 2,
    },
    "paused": {"resume": 14, "retime": 3, "jitter": 1, "other": 1, "delete": 2, "replace": 1},
}  # fmt: skip


class Name:
    """One sequence: the schedule that has the name now, and all that ever had it."""

    def __init__(self, number: int, writes: int) -> None:
        self.number, self.writes_left = number, writes
        self.lives: list[History] = []
        self.current: History | None = None

    @property
    def state(self) -> str:
        """Which actions make sense."""
        return "absent" if self.current is None else "paused" if self.current.paused else "active"


class Write(NamedTuple):
    """One line of one statement."""

    name: Name
    kind: str
    id: UUID
    timing: Timing


class Draws:
    """One stream of random numbers for all sequences: a seed is a timeline."""

    def __init__(self, seed: int, start_s: int) -> None:
        self.random, self.start_s = Random(seed), start_s

    def name(self, number: int) -> Name:
        """A sequence."""
        return Name(number, self.random.randint(3, 5))

    def writes(self, name: Name, now_s: float, *, slow: bool = False) -> list[Write]:
        """What is written to a name next. `slow`: in a transaction that stays open."""
        life = name.current
        if life is None:
            return [self._creation(name, now_s, slow)]
        actions = ACTIONS[name.state]
        action = self.random.choices(list(actions), list(actions.values()))[0]
        if slow and action not in ("pause", "resume", "delete"):
            action = "retime"
        changed = self._changed(life.timing, action, now_s, slow)
        if action == "replace":
            return [Write(name, "delete", life.id, life.timing), self._creation(name, now_s, slow)]
        if action == "blink":
            return [Write(name, kind, life.id, life.timing) for kind in ("pause", "resume")]
        if action == "twice":
            again = self._changed(changed, action, now_s, slow)
            return [Write(name, "put", life.id, changed), Write(name, "retime", life.id, again)]
        if action == "same":
            return [Write(name, "put", life.id, life.timing)]
        if action in ("retime", "jitter", "phase"):
            return [Write(name, self.random.choice(["put", "retime"]), life.id, changed)]
        return [Write(name, action, life.id, life.timing)]

    def _creation(self, name: Name, now_s: float, slow: bool) -> Write:
        id = UUID(int=self.random.getrandbits(120) << 8 | name.number % PARTITIONS)
        return Write(name, "put", id, self._timing(now_s, slow))

    def _timing(self, now_s: float, slow: bool) -> Timing:
        # An open transaction must not hold the row of a spec, as a first jitter does: others of this test would wait for it.
        jitter_s = 0 if slow or self.random.random() < 0.6 else self.random.randint(1, 25)
        kind = self.random.choices(["every", "cron", "at"], [7, 2, 1])[0]
        if kind == "every":
            every_s = self.random.choice(EVERY_S)
            return Timing(every_s, None, self._phase(every_s), jitter_s)
        if kind == "cron":
            cron = self.random.choice(CRONS)
            return Timing(None, cron, 0, 0 if cron in UNJITTERED else jitter_s)
        return Timing(None, None, int(now_s) + self.random.randint(-5, 100), jitter_s)

    def _phase(self, every_s: int) -> int:
        return (self.start_s + self.random.randrange(every_s)) % every_s

    def _changed(self, timing: Timing, action: str, now_s: float, slow: bool) -> Timing:
        changed = timing
        while changed == timing:
            if action == "jitter" and timing.cron not in UNJITTERED:
                changed = replace(timing, jitter_s=self.random.randint(0, 25))
            elif action == "phase" and timing.every_s is not None:
                changed = replace(timing, phase_s=self._phase(timing.every_s))
            else:
                changed = self._timing(now_s, slow)
        return changed

    def following(self, name: Name, step: int, now_s: float) -> int | None:
        """The step of its next writes, if there are any. Half of them come within two seconds of an instant, or of when it is due."""
        name.writes_left -= 1
        following = step + self.random.randint(3, 50)
        life = name.current
        if life is not None and self.random.random() < 0.5:
            instants = life.timing.instants(int(now_s) + 3, int(now_s) + 90)
            if instants:
                near = self.random.choice(instants[:3]) + self.random.randrange(2) * life.timing.offset_s(life.id)
                following = max(step + 1, near - self.start_s + self.random.randint(-2, 2))
        return following if name.writes_left > 0 else None

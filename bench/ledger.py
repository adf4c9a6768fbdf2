"""What the statements took, from Postgres's own log: count, time and CPU by the name they have in `store/sql/`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from bucketd.store.statements import modules, statements

# Wall time: log_min_duration_statement = 0. CPU: log_statement_stats = on. The statement stands on the lines after the head.
_DURATION = re.compile(r"^LOG:  duration: ([\d.]+) ms  (parse|bind|execute) [^:]*: (.*)")
_CPU = re.compile(r"^!\s+([\d.]+) s user, ([\d.]+) s system, ([\d.]+) s elapsed")


class Cost:
    """Of one statement. Seconds."""

    def __init__(self) -> None:
        self.calls = 0
        self.wall_s = 0.0
        self.cpu_s = 0.0


def costs(log: Path, begin: int) -> dict[str, Cost]:
    """By statement, of what the log says from byte `begin` on."""
    known = first_lines()
    found: defaultdict[str, Cost] = defaultdict(Cost)
    cpu_s = 0.0
    with log.open("rb") as stream:
        stream.seek(begin)
        for raw in stream:
            line = raw.decode(errors="replace").lstrip("\t").rstrip()
            if hit := _DURATION.match(line):
                cost = found[known.get(hit[3], hit[3][:60])]
                cost.wall_s += float(hit[1]) / 1000
                cost.calls += hit[2] == "execute"
            elif hit := _CPU.match(line):
                cpu_s = float(hit[1]) + float(hit[2])
            elif line.startswith("STATEMENT:  "):
                text = line.removeprefix("STATEMENT:  ")
                found[known.get(text, text[:60])].cpu_s += cpu_s
                cpu_s = 0.0
    return dict(found)


def first_lines() -> dict[str, str]:
    """First line of each statement -> module.name."""
    return {
        text.splitlines()[0].rstrip(): f"{module}.{name}"
        for module in modules()
        for name, text in statements(module).items()
    }

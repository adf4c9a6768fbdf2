"""What a process costs and holds, asked of the operating system."""

from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used so far, its own and the kernel's for it."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def descriptors(pid: int) -> int:
    """How many files and sockets it has open."""
    return int(psutil.Process(pid).num_fds())


def with_variable(name: str, value: str) -> Iterator[int]:
    """Process ids of the living processes that were started with this environment variable."""
    for process in psutil.process_iter(["environ", "status"]):
        if (process.info["environ"] or {}).get(name) == value and process.info["status"] != psutil.STATUS_ZOMBIE:
            yield process.pid

"""Runs one server and stops it when its owner goes away; started by server.py as a script, standard library only.

The owner holds the write end of a pipe, the lifeline. It is closed by `Server.stop()`, and by the kernel when the owner
dies, kill -9 included; either way the guard sees the end of the file and stops the server. (PR_SET_PDEATHSIG in the
owner would not do: it fires when the *thread* that forked ends, and does not exist outside Linux. Here, where there is
one thread, it covers the death of the guard itself.)

The guard also holds the directory's lock (an inherited descriptor): it is free when the server is gone.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

PR_SET_PDEATHSIG, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 28, 47, 2
NO_SETUID_FIXUP = 1 << 2
OVERRIDE, READ = 1, 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
CAPABILITY_VERSION_3 = 0x20080522


def main() -> int:
    """Argument: one JSON object, see server.py. Writes the server's pid to `report_fd`; exits as the server did."""
    plan = json.loads(sys.argv[1])
    for fd in (plan["lifeline_fd"], plan["lock_fd"], plan["report_fd"]):
        os.set_inheritable(fd, False)
    wakeup_fd = _wake_on_signals()
    pid = os.fork()
    if pid == 0:
        _become_server(plan)
    os.write(plan["report_fd"], f"{pid}\n".encode())
    os.close(plan["report_fd"])
    status = _wait(pid, wakeup_fd, plan["lifeline_fd"], time_s=None)
    for name in (plan["stop_signal"], "SIGQUIT", "SIGKILL"):
        if status is not None:
            break
        os.kill(pid, signal.Signals[name])
        status = _wait(pid, wakeup_fd, None, plan["grace_s"])
    return 1 if status is None else abs(os.waitstatus_to_exitcode(status))


def _wake_on_signals() -> int:
    """A descriptor that becomes readable on SIGCHLD and on every signal that asks us to stop."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    os.set_blocking(read_fd, False)
    signal.set_wakeup_fd(write_fd)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)
    return read_fd


def _wait(pid: int, wakeup_fd: int, lifeline_fd: int | None, time_s: float | None) -> int | None:
    """The server's wait status; None when the lifeline closed, a stop signal came, or the time is over."""
    end = None if time_s is None else time.monotonic() + time_s
    watched = [wakeup_fd] if lifeline_fd is None else [wakeup_fd, lifeline_fd]
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return None
        ready = select.select(watched, [], [], left)[0]
        signals = os.read(wakeup_fd, 512) if wakeup_fd in ready else b""
        if lifeline_fd is not None and (lifeline_fd in ready or set(signals) - {signal.SIGCHLD}):
            return None


def _become_server(plan: dict[str, Any]) -> None:
    """Never returns: drops root if asked to, ties its life to the guard's, then becomes the server."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        drop_root(plan["uid"], plan["gid"], plan["rights"])
        if sys.platform == "linux":  # after the change of user, which clears it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.Signals[plan["stop_signal"]]), 0, 0, 0)
        os.execve(plan["command"][0], plan["command"], {"PATH": os.defpath, "LC_ALL": "C"})
    except BaseException as error:
        os.write(2, f"guard: {error!r}\n".encode())
    finally:
        os._exit(127)


def drop_root(uid: int | None, gid: int | None, rights: Sequence[int]) -> None:
    """Become (uid, gid), nothing if they are None; keep the file rights READ and OVERRIDE as asked, for exec too.

    They let the server run from a checkout below a private home such as /root, where the alternative is to open the
    home to everyone. Where READ is not ours to keep (containers), OVERRIDE, the greater one, stands in.
    """
    if uid is None or gid is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if rights:  # access(2), which Postgres asks about its own binaries, honours them only with this bit set
        _checked(libc.prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if rights:
        _keep(libc, rights)


def _keep(libc: ctypes.CDLL, rights: Sequence[int]) -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the upper halves
    _checked(libc.capget(header, sets))
    kept = [number for number in rights if sets[1] & 1 << number] or [OVERRIDE]
    mask = sum(1 << number for number in kept) & sets[1]
    _checked(libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)))  # all others are gone from here on
    for number in kept:
        _checked(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise PermissionError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main())

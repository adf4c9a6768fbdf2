"""Becomes another program that ends when its parent does, kill -9 included; run as a script, standard library only.

Arguments: the parent's pid, then the command. Linux only; elsewhere it just becomes the command.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == parent:  # else it died before the line above
        os.execv(command[0], command)
    os._exit(0)


if __name__ == "__main__":
    main()

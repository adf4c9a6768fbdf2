"""`bucketd demo --quick`: ends well, and leaves nothing behind, interrupted or not."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.vitals import with_variable


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The demo's own directory for temporary files, which must be empty in the end. Short: so are sockets' paths."""
    directory = Path(tempfile.mkdtemp(prefix="bucketd-tests-"))
    directory.chmod(0o711)
    yield directory
    assert list(directory.iterdir()) == []
    assert not list(with_variable("TMPDIR", str(directory)))
    directory.rmdir()


def start(temporary: Path, home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bucketd", "demo", "--quick"],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary), "HOME": str(home)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(150)
def test_the_quick_demo(temporary: Path, tmp_path: Path) -> None:
    with start(temporary, tmp_path) as demo:
        printed, _ = demo.communicate(timeout=120)
    assert demo.returncode == 0, printed
    assert printed.splitlines()[-1].startswith("✔ all "), printed
    assert printed.count("kill -9") == 2


def test_an_interrupted_demo(temporary: Path, tmp_path: Path) -> None:
    """SIGTERM is what Ctrl-C is: everything stops, and the code says so."""
    with start(temporary, tmp_path) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "load schedules" in line:
                break
        demo.send_signal(signal.SIGTERM)
        rest, _ = demo.communicate(timeout=30)
    assert demo.returncode == 130, rest
    assert "Traceback" not in rest

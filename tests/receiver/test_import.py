"""Receivers are other people's applications: the checker brings nothing into them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_needs_the_standard_library_alone() -> None:
    """Without site-packages nothing else can be imported."""
    code = "import bucketd.receiver as r; print(r.Receiver('whsec_' + 'A' * 40))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr

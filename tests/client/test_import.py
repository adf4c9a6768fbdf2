"""`import bucketd` costs next to nothing, and every public name is there."""

import subprocess
import sys

import bucketd
import bucketd.client


def test_importing_bucketd_loads_nothing_heavy() -> None:
    heavy = "psycopg", "pydantic", "redis", "bucketd.client", "bucketd.store", "bucketd.timing"
    code = f"import sys, bucketd; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_importing_the_client_does_not_load_http_or_servers() -> None:
    code = "import sys, bucketd.client; print([n for n in ('aiohttp', 'httpx', 'uvloop', 'bucketd.runner') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    for module in (bucketd, bucketd.client):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert set(bucketd.__all__) <= set(dir(bucketd))

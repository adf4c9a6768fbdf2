"""What is installed is one package, `bucketd`, whole, and it does not care what else is called `store`."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"bucketd", "runner", "store", "tests", "bench", "ops"}
FILES = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", "requirements.lock", ".gitignore"}


def run(command: list[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Its output; AssertionError with it if the command fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout with the hatchling that is installed here."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT], cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel in it, and with our dependencies but not our checkout."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    fresh = home / "bin" / "python"
    site = Path(run([fresh, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=home).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The path alone: the .pth files in it, our editable install's among them, are not read through this one.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return fresh


@pytest.mark.parametrize("name", ["runner", "store"])
def test_the_two_folders_are_linked_below_the_one_name(name: str) -> None:
    link = ROOT / "bucketd" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert (ROOT / name / "__init__.py").is_file()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_top_level_of_the_repository() -> None:
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = run([*git], cwd=ROOT).splitlines()
    names = {line.split("/", 1)[0] for line in tracked}
    assert names <= FOLDERS | FILES | {".ci"}, names - FOLDERS - FILES
    assert names >= {"pyproject.toml", "README.md", "LICENSE", "Makefile", "requirements.lock", ".ci", "bucketd"}


def test_wheel_installs_bucketd_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {name.split("/", 1)[0] for name in names} == {"bucketd"}


def test_wheel_holds_every_file_of_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    expected = {"bucketd/py.typed"}
    for folder, where in (("bucketd", "bucketd"), ("runner", "bucketd/runner"), ("store", "bucketd/store")):
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / folder)
            linked = folder == "bucketd" and inside.parts[0] in ("runner", "store")
            if path.is_file() and not linked and "__pycache__" not in path.parts:
                expected.add(f"{where}/{inside.as_posix()}")
    assert packed == expected
    for part in ("store/migrations/", "store/sql/", "store/lua/"):
        assert any(name.startswith(f"bucketd/{part}") for name in packed), f"nothing of {part} in the wheel"


def test_installed_package_is_indifferent_to_a_foreign_store(python: Path, tmp_path: Path) -> None:
    for name in ("store", "runner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the foreign package was imported')\n")
    script = "import bucketd.store.migrate as m, bucketd.runner; print(m.__file__); print(m.known()[0])"
    where, first = run([python, "-c", script], cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(python.parents[1])
    assert first.startswith("0001_")


def test_lock_names_no_place(tmp_path: Path) -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert str(ROOT) not in text


def test_makefile_offers_what_the_readme_says() -> None:
    text = (ROOT / "Makefile").read_text()
    for target in ("setup", "demo", "test", "lint", "types", "bench", "lock", "clean", "help"):
        assert f"\n{target}:" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)

"""The wheel, installed outside the checkout, is complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = "A small command line tool that converts images between many file formats."


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds nothing but the installed wheel."""
    work = tmp_path_factory.mktemp("wheel")
    source, wheels, target = work / "source", work / "wheels", work / "installed"
    _copy_checkout(source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source]
    subprocess.run(built, check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def _copy_checkout(target: Path) -> None:
    """Only what is tracked: no build of an earlier run."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def _run(installed: Path, tmp_path: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_it_summarises_with_the_bundled_model_from_another_directory(
    installed: Path, tmp_path: Path
) -> None:
    where = _run(installed, tmp_path, "-c", "import raydiff; print(raydiff.__file__)")
    assert where.startswith(str(installed))
    summary = _run(installed, tmp_path, "-m", "raydiff", "generate", TEXT, "--threads", "1")
    assert summary.strip()


def test_it_holds_the_licence_the_types_and_no_tests(installed: Path) -> None:
    (metadata,) = installed.glob("raydiff-*.dist-info")
    assert "Apache License" in (metadata / "licenses" / "LICENSE").read_text()
    assert (installed / "raydiff" / "py.typed").is_file()
    packages = {p.name for p in installed.iterdir() if not p.name.endswith(".dist-info")}
    assert packages <= {"raydiff", "bin"}

"""What `ray job submit --working-dir .` uploads."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from ray._private.ray_constants import get_runtime_env_default_excludes
from ray._private.runtime_env.packaging import create_package

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 50 * 2**20


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that Ray makes of the checkout, by Ray's own code."""
    target = tmp_path_factory.mktemp("upload") / "package.zip"
    excludes = get_runtime_env_default_excludes()
    create_package(str(ROOT), target, include_gitignore=True, excludes=excludes)
    return target


def test_the_upload_stays_small_beside_a_virtual_environment(upload: Path) -> None:
    names = zipfile.ZipFile(upload).namelist()
    assert not [name for name in names if name.split("/")[0] in (".venv", ".git", "out")]
    assert upload.stat().st_size < LIMIT_BYTES


def test_the_upload_holds_what_a_job_needs(upload: Path) -> None:
    names = set(zipfile.ZipFile(upload).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "raydiff", "jobs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(tracked.stdout.split()) <= names

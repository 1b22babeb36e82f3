"""Setting up: the pins and the shell functions that every script shares."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETUP = ROOT / "deploy" / "setup.sh"
SCRIPTS = ["deploy/setup.sh", "jobs/demo.sh", "tests/run.sh", ".ci/run"]


def _pins() -> dict[str, str]:
    lines = (ROOT / "deploy" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin) for pin in pins), pins
    return dict(pin.split("==") for pin in pins)


def _requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [
        Requirement(r) for r in (*project["dependencies"], *(r for e in extras.values() for r in e))
    ]


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    pins = _pins()
    for requirement in _requirements():
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: {version}"


def test_torch_is_the_version_agreed_on_and_of_no_particular_build() -> None:
    pins = _pins()
    assert pins["torch"] == "2.13.0"
    assert not [name for name in pins if name.startswith(("nvidia-", "triton"))]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_stop_at_the_first_failure(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", ROOT / name], check=True)
    if name != "deploy/setup.sh":  # sourced by the others
        assert "set -euo pipefail" in text
        assert os.access(ROOT / name, os.X_OK)


def _bash(code: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail; source {SETUP}; {code}"],
        env={"PATH": path},
        capture_output=True,
        text=True,
    )


def _fake_python(folder: Path, name: str, version: tuple[int, int]) -> None:
    """A program that answers as a Python of that version would."""
    fits = "0" if (3, 11) <= version <= (3, 12) else "1"
    script = folder / name
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo Python {version[0]}.{version[1]} && exit 0\n'
        f"exit {fits}\n"
    )
    script.chmod(0o755)


def test_a_python_that_is_too_old_is_named_with_what_is_needed(tmp_path: Path) -> None:
    _fake_python(tmp_path, "python3", (3, 9))
    done = _bash("find_python", str(tmp_path))
    assert done.returncode == 3
    assert "expected 3.11 or 3.12" in done.stderr
    assert "got Python 3.9" in done.stderr


def test_a_fitting_python_is_found_behind_one_that_is_not(tmp_path: Path) -> None:
    _fake_python(tmp_path, "python3", (3, 13))
    _fake_python(tmp_path, "python3.12", (3, 12))
    assert _bash("find_python", str(tmp_path)).stdout.strip() == str(tmp_path / "python3.12")

"""The package as a whole: what importing it costs, what it exports, what the checkout holds."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import raydiff

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "dashboards",
    "deploy",
    "jobs",
    "pyproject.toml",
    "raydiff",
    "tests",
}
HEAVY = ("torch", "ray", "transformers", "pyarrow", "fastapi")


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


@pytest.mark.parametrize(
    "statement", ["import raydiff", "import raydiff.cli as c; c.build_parser()"]
)
def test_importing_loads_nothing_heavy(statement: str) -> None:
    """Neither the package nor the command line's parser loads torch or ray."""
    code = f"{statement}\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_takes_under_0_3_s_of_cpu() -> None:
    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import raydiff"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(cpu_s() for _ in range(5)) < 0.3


def test_every_public_name_is_there() -> None:
    for name in raydiff.__all__:
        assert getattr(raydiff, name) is not None
    assert raydiff.__all__ == sorted(raydiff.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'engin'"):
        raydiff.engin  # noqa: B018  (the access is the test)


def test_the_top_level_holds_only_the_rooms() -> None:
    top = {path.split("/")[0] for path in _tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_no_file_names_a_path_of_the_machine_it_was_made_on() -> None:
    """What ships depends on no directory outside the checkout."""
    outside = re.compile(rb"/(?:work|root|home/\w+|opt)/")
    suffixes = {".py", ".sh", ".md", ".toml", ".txt", ".json", ".yaml", ".jinja", ""}
    for name in _tracked():
        path = ROOT / name
        if path.suffix in suffixes and path.is_file() and path != Path(__file__):
            found = outside.search(path.read_bytes())
            assert found is None, f"{name}: {found}"


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    odd = {"utils.py", "helpers.py", "common.py", "misc.py"}
    assert [name for name in _tracked() if Path(name).name in odd] == []

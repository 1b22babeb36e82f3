"""The README tells the truth: its commands parse, its files exist, its programs run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raydiff.cli import COMMANDS as COMMANDS_OF_RAYDIFF
from raydiff.cli import build_parser, main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    line.removeprefix("$ ")
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
    if line.startswith("$ ")
]
RAYDIFF = [c.split("raydiff ", 1)[1] for c in COMMANDS if c.startswith(".venv/bin/raydiff ")]


@pytest.mark.parametrize("command", RAYDIFF)
def test_every_raydiff_command_parses(command: str) -> None:
    build_parser().parse_args(shlex.split(command))


def test_the_readme_shows_every_subcommand_but_only_real_ones() -> None:
    shown = set(re.findall(r"(?:\.venv/bin/|`)raydiff (\w+)", README))
    assert shown == set(COMMANDS_OF_RAYDIFF)


def test_every_script_and_link_and_mapped_file_exists() -> None:
    scripts = [word for command in COMMANDS for word in command.split() if word.startswith("jobs/")]
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", README)
    mapped = re.findall(r"^\| `([^`]+)` \|", README, re.M)
    assert scripts
    assert links
    assert len(mapped) > 15
    missing = [name for name in scripts + links + mapped if not (ROOT / name).exists()]
    assert missing == []


def test_the_map_leaves_no_room_out() -> None:
    rooms = {p.name for p in (ROOT / "raydiff").iterdir() if not p.name.startswith("_")}
    rooms -= {"py.typed", "version.py"}
    mapped = {Path(name).name for name in re.findall(r"^\| `raydiff/([^`]+)` \|", README, re.M)}
    assert mapped == rooms


GENERATE = [c for c in RAYDIFF if c.startswith("generate ") and "random:tiny" in c]


@pytest.mark.parametrize("command", GENERATE)
def test_every_example_of_a_decoder_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*shlex.split(command), "--device", "cpu", "--threads", "1"]) == 0
    assert capsys.readouterr().out.strip()


def _program(marker: str) -> str:
    (program,) = (text for text in PROGRAMS if marker in text)
    return program


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_library_example_runs() -> None:
    lines = _run(_program("Engine.load")).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.search(r"\S.* \d+(\.\d+)?$", line)


@pytest.fixture(scope="module")
def served(ray_cluster: dict[str, Any]) -> Iterator[str]:
    """URL of an app that serves the bundled model."""
    from raydiff.config import AppSettings, ServeSettings
    from raydiff.launch import running_app

    with running_app(AppSettings(threads=1), ServeSettings(port=0), reuse=False) as app:
        yield app.url


def test_the_openai_example_runs(served: str) -> None:
    program = _program("import OpenAI")
    assert "http://127.0.0.1:8000" in program
    printed = _run(program.replace("http://127.0.0.1:8000", served))
    assert len(printed.split()) >= 2

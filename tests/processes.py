"""Processes that a test starts: their output, their descendants, and that none stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def start_raydiff(
    args: Sequence[str], output: IO[bytes], env: Mapping[str, str | None]
) -> subprocess.Popen[bytes]:
    """Run the command with a changed environment (`None` unsets), output in one file."""
    full = {**os.environ, **{k: v for k, v in env.items() if v is not None}}
    for name in (k for k, v in env.items() if v is None):
        full.pop(name, None)
    command = [sys.executable, "-m", "raydiff", *args]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=full)


def wait_for_text(process: subprocess.Popen[bytes], output: Path, text: str) -> None:
    """Wait until the output holds `text`."""
    for _ in range(2400):
        if text in output.read_text():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(output.read_text())


def descendants(pid: int) -> set[int]:
    """Pids of all living processes below `pid`."""
    parents = _parents()
    found: set[int] = set()
    newest = {pid}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest} - found
        found |= newest
    return found


def still_alive(pids: set[int]) -> set[int]:
    """Those of `pids` that have not ended within some seconds."""
    for _ in range(100):
        alive = pids & _parents().keys()
        if not alive:
            return set()
        time.sleep(0.1)
    return alive


def _parents() -> dict[int, int]:
    """Parent of every process that is no zombie."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    return parents

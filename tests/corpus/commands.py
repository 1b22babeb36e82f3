"""Command lines of processes, from /proc: psutil is not among raydiff's dependencies."""

from __future__ import annotations

from pathlib import Path


def command(pid: int) -> str:
    """The command line; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""

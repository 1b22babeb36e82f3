"""Processor seconds of an app, by what its processes do. Linux only: read from `/proc`."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raydiff.serve.app import GATEWAY

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_REPLICA = "ray::ServeReplica:"


@dataclass(frozen=True)
class Process:
    """One process."""

    parent: int
    title: str
    """Its command line, which Ray's workers set to what they do."""
    cpu_s: float


def processes(proc: Path = Path("/proc")) -> dict[int, Process]:
    """All processes of this machine that can be read, by id."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            process = _read(folder)
            if process is not None:
                found[int(folder.name)] = process
    return found


def cpu_by_role(root: int, found: Mapping[int, Process]) -> dict[str, float]:
    """Processor seconds of all descendants of `root`, summed by role.

    Roles are gateway, replica, proxy, haproxy and ray, which is everything else.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for pid, process in found.items():
        if _descends(pid, root, found):
            seconds[role_of(process.title)] += process.cpu_s
    return dict(seconds)


def descendants(root: int, found: Mapping[int, Process]) -> list[int]:
    """The processes that `root` started, and those that they did."""
    return [pid for pid in found if _descends(pid, root, found)]


def role_of(title: str) -> str:
    """What a process of an app does."""
    if title.startswith(_REPLICA):
        _, _, deployment = title.removeprefix(_REPLICA).partition(":")
        return "gateway" if re.split(r"[.#\s]", deployment)[0] == GATEWAY else "replica"
    if title.startswith("ray::ProxyActor"):
        return "proxy"
    return "haproxy" if "haproxy" in title.split(" ")[0] else "ray"


def cpu_ms_per_request(
    before: Mapping[str, float], after: Mapping[str, float], requests: int
) -> dict[str, float]:
    """Milliseconds of processor time that each role took between two readings, per request."""
    return {
        role: 1000 * (seconds - before.get(role, 0.0)) / max(1, requests)
        for role, seconds in sorted(after.items())
    }


def _descends(pid: int, root: int, found: Mapping[int, Process]) -> bool:
    while pid in found:
        pid = found[pid].parent
        if pid == root:
            return True
    return False


def _read(folder: Path) -> Process | None:
    """The process, unless it has ended meanwhile."""
    try:
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        title = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    after_name = fields.rpartition(")")[2].split()
    ticks = int(after_name[11]) + int(after_name[12])
    return Process(
        parent=int(after_name[1]),
        title=title.replace(b"\0", b" ").decode(errors="replace").strip(),
        cpu_s=ticks * _TICK_S,
    )

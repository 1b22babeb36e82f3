"""Who holds a run: written into its lease, so that others can name it."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Holder:
    """One process, as others see it."""

    host: str
    pid: int
    since: str
    """When it took the lease, by its own clock; for people."""
    lease_s: float
    machine: str
    """This boot of this machine and its namespace of pids; empty where that is unknown."""
    born: str
    """When the process was started, in ticks of the machine: pids are used again."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def current(cls, lease_s: float) -> Holder:
        """This process."""
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            lease_s=lease_s,
            machine=_machine(),
            born=_born(os.getpid()),
        )

    def record(self, renewals: int) -> bytes:
        """What the lease holds; every renewal makes it another object."""
        return json.dumps({**asdict(self), "renewals": renewals}, indent=1).encode()

    @classmethod
    def parse(cls, record: bytes) -> Holder | None:
        """The holder that wrote a lease, or `None` if it is not one of raydiff's."""
        try:
            values = json.loads(record)
            values.pop("renewals")
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def is_known_dead(self) -> bool:
        """Whether the process certainly has ended; `False` where that cannot be seen."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's, and alive
        born = _born(self.pid)
        return born not in ("", self.born)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str:
    """When a process was started; empty where that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()
    return "ended" if state in "ZX" else rest[18]

"""The kinds of drill: what breaks, when, and what the run needs to be brought to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .corpus import BREAKS_TOKENIZER, KILLS_REPLICA, KILLS_WORKER
from .hooks import INSTALL
from .outputs import LocalOutput
from .runs import Run

OUTAGE_S = 30.0
_STOPPED, _DONE = 3, 0
_MANY_KILLS = 3


class Missed(Exception):
    """The run was over before the fault came; the drill says nothing."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of drill."""

    name: str
    strike: Callable[[Run], None]
    """Starts the run, breaks something, brings the run to its end."""
    culprits: tuple[str, ...] = ()
    worker_hook: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    where: str = "local"
    """Where the output lies: local, small (a disk of its own) or s3."""


def _driver_kill(run: Run) -> None:
    for _ in range(run.rng.randint(1, _MANY_KILLS)):
        run.start()
        if not run.random_moment(early=True):
            break
        run.signal(signal.SIGKILL)
        run.cluster.wait_until_quiet()
        run.note_committed()
    else:
        run.start()
    run.finish()
    if run.starts < 2:
        raise Missed


def _cancel(run: Run) -> None:
    run.start()
    if not run.random_moment(early=True):
        raise Missed
    status = run.signal(run.rng.choice((signal.SIGTERM, signal.SIGINT)))
    if status == _DONE:
        raise Missed
    run.cluster.wait_until_quiet()
    run.start()
    run.finish()


def _worker_kill(run: Run) -> None:
    run.start()
    for _ in range(run.rng.randint(1, 2)):
        workers = run.cluster.workers() if run.random_moment() else []
        if not workers:
            raise Missed
        _kill(run.rng.choice(workers))
    run.finish()


def _replica_kill(run: Run) -> None:
    run.start()
    if not run.random_moment():
        raise Missed
    _kill(run.rng.choice(run.cluster.replicas()))
    run.finish()


def _node_removed(run: Run) -> None:
    run.start()
    if not run.random_moment():
        raise Missed
    run.cluster.remove_node(run.rng.randrange(2))
    run.cluster.add_missing()
    run.finish()


def _raylet_kill(run: Run) -> None:
    run.start()
    if not run.random_moment():
        raise Missed
    run.cluster.kill_raylet(run.rng.randrange(2))
    run.cluster.add_missing()
    run.finish()


def _replica_stuck(run: Run) -> None:
    run.start()
    if not run.random_moment():
        raise Missed
    os.kill(run.rng.choice(run.cluster.replicas()), signal.SIGSTOP)
    run.finish()


def _worker_stuck(run: Run) -> None:
    run.start()
    workers = run.cluster.workers() if run.random_moment() else []
    if not workers:
        raise Missed
    os.kill(run.rng.choice(workers), signal.SIGSTOP)
    run.finish()


def _undisturbed(run: Run) -> None:
    run.start()
    run.finish()


def _disk_full(run: Run) -> None:
    assert isinstance(run.output, LocalOutput)
    ballast = run.output.root.parent / "ballast"
    run.start()
    if not run.random_moment():
        raise Missed
    _fill(ballast)
    if run.rng.random() < 0.5:
        time.sleep(run.rng.uniform(1.0, 3.0))
        ballast.unlink()
        run.finish()
        return
    status = run.wait()
    ballast.unlink()
    if status == _DONE:
        raise Missed
    if status != _STOPPED:
        raise RuntimeError(f"the driver ended with status {status}, expected {_STOPPED}")
    run.note_committed()
    run.start()
    run.finish()


def _fill(path: Path) -> None:
    block = bytes(4096)
    with suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(block)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


LOCAL_KINDS = (
    Kind(name="driver-kill", strike=_driver_kill),
    Kind(name="cancel", strike=_cancel),
    Kind(name="worker-kill", strike=_worker_kill),
    Kind(name="replica-kill", strike=_replica_kill),
    Kind(name="node-removed", strike=_node_removed),
    Kind(name="raylet-kill", strike=_raylet_kill),
    Kind(
        name="disk-full",
        strike=_disk_full,
        where="small",
        settings={"storage": {"patience_s": 5.0}},
    ),
    Kind(
        name="tokenizer-broken",
        strike=_undisturbed,
        culprits=(BREAKS_TOKENIZER, BREAKS_TOKENIZER),
        worker_hook=INSTALL,
    ),
    Kind(
        name="worker-killer",
        strike=_undisturbed,
        culprits=(KILLS_WORKER,),
        worker_hook=INSTALL,
    ),
    Kind(name="replica-killer", strike=_undisturbed, culprits=(KILLS_REPLICA,)),
    Kind(name="replica-stuck", strike=_replica_stuck, settings={"stuck_call_s": 3.0}),
    Kind(name="worker-stuck", strike=_worker_stuck, settings={"stuck_after_s": 8.0}),
)


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, small enough to be filled."""

    path: Path
    size_kib: int = 2048

    def mount(self) -> None:
        """Needs root."""
        self.path.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self.size_kib}k", "tmpfs", str(self.path)],
            check=True,
        )

    def unmount(self) -> None:
        """Lazily: a worker may still have it open."""
        subprocess.run(["umount", "-l", str(self.path)], check=True)

"""One drill's run: starts of its driver, and moments at which something breaks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cluster import MODEL, DrillCluster, wait_until
from .corpus import Corpus
from .outputs import Output, parts

ROOT = Path(__file__).parents[2]
SHARD_ROWS = 4
MAX_ATTEMPTS = 2
END_S = 240.0
"""A driver that takes longer hangs."""


@dataclass
class Run:
    """A run directory, the corpus it is for, and what happened to it."""

    cluster: DrillCluster
    folder: Path
    corpus: Corpus
    output: Output
    rng: random.Random
    settings: dict[str, Any] = field(default_factory=dict)
    worker_hook: str | None = None
    starts: int = 0
    moments: list[str] = field(default_factory=list)
    committed: dict[str, str] = field(default_factory=dict)
    """Part files seen at faults; none may change afterwards."""
    process: subprocess.Popen[str] | None = None
    started_s: float = 0.0

    def start(self) -> None:
        """Start a driver; it continues what earlier ones left."""
        self.starts += 1
        spec = self.folder / f"spec-{self.starts}.json"
        spec.write_text(json.dumps(self._spec()))
        with (self.folder / "driver.log").open("a") as log:
            print(f"--- start {self.starts}", file=log, flush=True)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.drills.driver", str(spec)],
                cwd=ROOT,
                env={**os.environ, "RAY_ADDRESS": self.cluster.address},
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.started_s = time.monotonic()

    def wait(self) -> int:
        """The driver's exit status, once it has ended by itself."""
        assert self.process is not None
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise TimeoutError(f"the driver did not end within {END_S:.0f} s") from None

    def finish(self) -> None:
        """Wait for the driver that runs to bring the run to its end."""
        expected = 1 if self.corpus.culprits else 0
        status = self.wait()
        if status != expected:
            raise RuntimeError(f"the driver ended with status {status}, expected {expected}")

    def signal(self, number: signal.Signals) -> int:
        """Signal the driver and wait for its end; its exit status."""
        assert self.process is not None
        self.note_committed()
        self.process.send_signal(number)
        return self.wait()

    def random_moment(self, *, early: bool = False) -> bool:
        """Wait for a moment of the run; returns whether the driver still runs then.

        `early` allows moments before the first commit too, even before there is a plan.
        """
        shards = -(-len(self.corpus.texts) // SHARD_ROWS)
        if early and self.rng.random() < 0.3:
            delay_s = self.rng.uniform(0.0, 8.0)
            self._note(f"{delay_s:.1f} s after the start")
        else:
            already = len(parts(self.output.files()))
            wanted = already + self.rng.randint(0, max(0, (shards - already) // 2))
            delay_s = self.rng.uniform(0.0, 1.0)
            self._note(f"{delay_s:.1f} s after part {wanted} of {shards}")
            self._wait_for(lambda: len(parts(self.output.files())) >= wanted)
            if not self.cluster.workers():
                self._wait_for(lambda: bool(self.cluster.workers()))
        time.sleep(delay_s)
        self.note_committed()
        return self.running

    @property
    def running(self) -> bool:
        """Whether a driver runs."""
        return self.process is not None and self.process.poll() is None

    def note_committed(self) -> None:
        """Remember the parts that are there: they must stay as they are."""
        self.committed.update(parts(self.output.files()))

    def end(self) -> None:
        """Leave no driver behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _note(self, moment: str) -> None:
        self.moments.append(moment)

    def _wait_for(self, condition: Any) -> None:
        wait_until(lambda: condition() or not self.running, "a moment of the run", END_S)

    def _spec(self) -> dict[str, Any]:
        settings = {
            "input": str(self.corpus.path),
            "output": self.output.location,
            "model": MODEL,
            "id_column": "doc_id",
            "shard_rows": SHARD_ROWS,
            "workers": 2,
            "shards_in_flight": 2,
            "calls_in_flight": 4,
            "max_attempts": MAX_ATTEMPTS,
            "call_timeout_s": 120.0,
            "seed": 7,
            "shared_filesystem": True,
            **self.settings,
        }
        decoding = {"steps": 4, "max_tokens": 16}
        return {"settings": settings, "decoding": decoding, "worker_hook": self.worker_hook}

"""A few drills stay in the fast suite; `tests/drills.sh faults` runs a hundred."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = ("driver-kill", "worker-kill")


@pytest.mark.timeout(600)
def test_faults_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    report = tmp_path / "drills.json"
    command = [
        *(sys.executable, "-m", "tests.drills", "--count", str(len(KINDS))),
        *("--kinds", ",".join(KINDS), "--folder", str(tmp_path / "runs"), "--json", str(report)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    drills = json.loads(report.read_text())["drills"]
    struck = [drill for drill in drills if drill["verdict"] == "ok"]
    assert len(struck) == len(KINDS)
    assert all(drill["rows_in"] == drill["rows_out"] for drill in drills)

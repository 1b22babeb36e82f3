"""An estimate beside the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raydiff.bench.capacity.comparison import compare, read_run
from raydiff.config import StorageSettings
from raydiff.errors import InputError

ESTIMATE: dict[str, Any] = {
    "documents": 100,
    "model": "m",
    "decoding": {"steps": 4},
    "estimates": {
        "prompt_tokens": {"value": 1100.0, "low": 900.0, "high": 1300.0},
        "output_tokens": {"value": 500.0, "low": 450.0, "high": 550.0},
        "forwards": {"value": 400.0, "low": 400.0, "high": 400.0},
    },
    "seconds": {"value": 30.0, "low": 20.0, "high": 40.0},
}
RUN: dict[str, Any] = {
    "status": "done",
    "model": "m",
    "rows": 100,
    "prompt_tokens": 1000,
    "output_tokens": 400,
    "forwards": 0,
    "fingerprint": {"decoding": {"steps": 4}},
    "session": {"documents": 100, "seconds": 25.0},
}


def test_errors_are_the_estimate_over_the_run() -> None:
    found = {row["what"]: row for row in compare(ESTIMATE, RUN)["rows"]}
    assert found["documents"]["error"] == 0
    assert found["prompt_tokens"]["error"] == pytest.approx(0.1)
    assert found["prompt_tokens"]["within"]
    assert not found["output_tokens"]["within"]
    assert found["forwards"]["error"] is None
    assert found["seconds"]["error"] == pytest.approx(0.2)
    assert compare(ESTIMATE, RUN)["notes"] == []


def test_what_makes_them_less_comparable_is_told() -> None:
    run = {
        **RUN,
        "model": "other",
        "fingerprint": {"decoding": {"steps": 8}},
        "session": {"documents": 50, "seconds": 10.0},
        "duplicates": 7,
        "failed": 2,
    }
    found = compare(ESTIMATE, run)
    notes = " / ".join(found["notes"])
    for said in ("model other", "steps 8", "50 of 100", "7 documents were copied", "2 documents"):
        assert said in notes
    assert found["rows"][-1]["run"] == 20.0


def test_only_a_finished_run_is_compared_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="finished run"):
        read_run(str(tmp_path), StorageSettings())
    (tmp_path / "_run.json").write_text(json.dumps({"status": "running"}))
    with pytest.raises(InputError, match="'running'"):
        read_run(str(tmp_path), StorageSettings())
    (tmp_path / "_run.json").write_text(json.dumps(RUN))
    assert read_run(str(tmp_path), StorageSettings())["rows"] == 100

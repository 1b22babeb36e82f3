"""Batches as Ray jobs on a real head with its job server and token authentication."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .live import DRIVER, ENDED, GATEWAY, chat_line, require_each_once, started_app

LINES = 48


@pytest.mark.timeout(300)
def test_a_batch_runs_as_a_job_and_answers_every_line_once(tmp_path: Path) -> None:
    """Several kinds of wrong lines cost only themselves; the same line online has the same
    answer; a batch that is none fails with the lines' numbers."""
    wrong: dict[int, dict[str, Any]] = {
        3: {"messages": []},
        17: {"temperature": -1},
        20: {"no_such_field": True},
        31: {"messages": [{"role": "user", "content": "x" * 20_000}]},
        40: {"stream": True},
    }
    lines = [chat_line(number, **wrong.get(number, {})) for number in range(LINES)]
    with started_app(tmp_path / "store") as app:
        broken_id = app.create([chat_line(0), b"{", chat_line(0)])
        batch_id = app.create(lines)
        done = app.wait(batch_id, lambda batch: batch.status in ENDED)
        output, errors = app.results(done)
        online = app.client.chat.completions.create(**lines[5]["body"])
        broken = app.wait(broken_id, lambda batch: batch.status in ENDED)
    require_each_once(lines, output, errors)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (LINES - 5, 5)
    assert [each["custom_id"] for each in errors] == [f"id-{number}" for number in sorted(wrong)]
    assert {each["response"]["status_code"] for each in errors} == {400}
    answered = next(each for each in output if each["custom_id"] == "id-5")["response"]["body"]
    said = answered["choices"][0]["message"]["content"]
    assert said == online.choices[0].message.content
    assert answered["system_fingerprint"] == online.system_fingerprint
    assert broken.status == "failed"
    assert broken.errors is not None
    assert broken.errors.data is not None
    found = [(error.line, error.code) for error in broken.errors.data]
    assert found == [(2, "invalid_json_line"), (3, "duplicate_custom_id")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_gateways_and_jobs_and_a_lost_head_cost_no_line(tmp_path: Path) -> None:
    """In mid-batch: both gateways and the job are killed, then the whole cluster is lost and
    another one started over the same store. What was committed stays as it is."""
    location = tmp_path / "store"
    lines = [chat_line(n, max_tokens=20, ignore_eos=True) for n in range(3000)]
    with started_app(location, gateways=2) as app:
        batch_id = app.create(lines)

        def done(least: int) -> int:
            batch = app.wait(
                batch_id,
                lambda b: b.request_counts is not None and b.request_counts.completed >= least,
            )
            assert batch.request_counts is not None
            return batch.request_counts.completed

        before = done(100)
        assert app.kill(GATEWAY) == 2
        assert app.kill(DRIVER) >= 1
        after = done(before + 200)  # its next job goes on
        assert after < len(lines)
    parts = {p.name: p.stat().st_mtime_ns for p in location.glob("batches/*/run/part-*")}
    assert sum(1 for _ in parts) >= after // 4
    with started_app(location, gateways=2) as app:
        ended = app.wait(batch_id, lambda batch: batch.status in ENDED, timeout_s=400)
        output, errors = app.results(ended)
    require_each_once(lines, output, errors)
    assert (ended.status, errors) == ("completed", [])
    now = {p.name: p.stat().st_mtime_ns for p in location.glob("batches/*/run/part-*")}
    assert parts.items() <= now.items()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cancelled_batch_stops_its_job_and_keeps_its_answers(tmp_path: Path) -> None:
    lines = [chat_line(n, max_tokens=20, ignore_eos=True) for n in range(3000)]
    with started_app(tmp_path / "store") as app:
        batch_id = app.create(lines)
        app.wait(
            batch_id, lambda b: b.request_counts is not None and b.request_counts.completed >= 50
        )
        assert app.client.batches.cancel(batch_id).status == "cancelling"
        ended = app.wait(batch_id, lambda batch: batch.status in ENDED)
        output, errors = app.results(ended)
        app.wait_until_gone(DRIVER)
    require_each_once(lines, output, errors)
    assert ended.status == "cancelled"
    assert len(output) >= 50
    assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}

"""What is logged of requests, and what never is."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from tests.serve.access.conftest import Instant, Opened

SECRET = "xylophone"
BODY = {"model": "small", "prompt": SECRET, "max_tokens": 4}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What goes to the process's own standard output."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "__stdout__", out)
    return out


async def test_each_request_is_one_line_with_its_cost_and_no_text(
    opened: Opened, lines: io.StringIO
) -> None:
    async with opened("key-alice", log_requests=True) as http:
        for stream in (False, True):
            await http.post(
                "/v1/completions",
                json={**BODY, "stream": stream},
                headers={"x-request-id": "mine"},
            )
        await http.post("/v1/completions", json={**BODY, "model": "unknown"})
        await http.get(f"/v1/models?{SECRET}", headers={"Authorization": f"Bearer {SECRET}"})
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [entry["status"] for entry in entries] == [200, 200, 404, 401]
    for entry in entries[:2]:
        assert (entry["request_id"], entry["key_id"], entry["model"]) == ("mine", "alice", "small")
        assert (entry["prompt_tokens"], entry["completion_tokens"]) == (len(SECRET) + 2, 3)
        assert entry["seconds"] >= 0
        assert entry["complete"]
    assert [entry["key_id"] for entry in entries] == ["alice", "alice", "alice", None]
    assert SECRET not in lines.getvalue()


async def test_it_is_silent_unless_asked(opened: Opened, lines: io.StringIO) -> None:
    async with opened("key-alice") as http:
        await http.post("/v1/completions", json=BODY)
    assert lines.getvalue() == ""


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_exception_is_logged_with_its_place_and_only_if_asked_with_its_message(
    opened: Opened, replicas: Instant, caplog: pytest.LogCaptureFixture, asked: bool, stream: bool
) -> None:
    replicas.error = RuntimeError(f"cannot take {SECRET}")
    caplog.set_level(logging.DEBUG)
    async with opened("key-alice", log_text=asked) as http:
        response = await http.post("/v1/completions", json={**BODY, "stream": stream})
    assert SECRET not in response.text
    if not stream:
        assert response.status_code == 500
        assert "RuntimeError" in caplog.text
        assert "conftest.py" in caplog.text
        assert (SECRET in caplog.text) is asked
    else:
        assert SECRET not in caplog.text

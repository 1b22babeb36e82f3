"""The real thing: a head with its job server and token authentication, an app with two gateways."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
from openai.types import Batch

from ..corpus.commands import command
from ..heads import Head, started_head

SPEC = "simulated:32x16=0.2s,tokens=20,block=32"
"""A model that needs no torch: 12.5 ms a forward."""
GATEWAY, DRIVER = "ServeReplica:raydiff:gateway", "-m raydiff batch "
"""In the command lines of a gateway and of a batch's job."""
ENDED = ("completed", "failed", "expired", "cancelled")


class App:
    """An app on a head of its own, as its clients and its operator see it."""

    def __init__(self, head: Head, url: str, model: str) -> None:
        self.head = head
        self.model = model
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=8)

    def create(self, lines: Sequence[Any]) -> str:
        """Upload lines and ask for a batch; its id."""
        content = b"\n".join(x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines)
        file = self.client.files.create(file=("in.jsonl", io.BytesIO(content)), purpose="batch")
        batch = self.client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        return batch.id

    def wait(self, batch_id: str, until: Callable[[Batch], bool], timeout_s: float = 180) -> Batch:
        """Poll until something is true of the batch."""
        deadline = time.monotonic() + timeout_s
        while True:
            batch = self.client.batches.retrieve(batch_id)
            if until(batch):
                return batch
            assert batch.status not in ENDED, batch
            assert time.monotonic() < deadline, (batch, self.logs(batch_id))
            time.sleep(0.2)

    def results(self, batch: Batch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Lines of the output and of the error file."""
        return self._lines(batch.output_file_id), self._lines(batch.error_file_id)

    def kill(self, what: str) -> int:
        """SIGKILL every process of the head with these words in its command line; how many."""
        pids = self._pids(what)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def wait_until_gone(self, what: str) -> None:
        """Until the head has no process with these words in its command line."""
        deadline = time.monotonic() + 60
        while self._pids(what):
            assert time.monotonic() < deadline, what
            time.sleep(0.2)

    def _pids(self, what: str) -> list[int]:
        return [pid for pid in self.head.processes() if what in command(pid)]

    def logs(self, batch_id: str) -> str:
        """What the batch's jobs wrote."""
        listed = self.head.job("list", check=False).stdout
        names = {w.strip("'\",") for w in listed.replace("=", " ").split() if batch_id in w}
        return "\n".join(self.head.job("logs", n, check=False).stdout for n in sorted(names))

    def _lines(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        return [json.loads(x) for x in self.client.files.content(file_id).text.splitlines()]


@contextmanager
def started_app(location: Path, *, gateways: int = 1, shard_lines: int = 4) -> Iterator[App]:
    """A head and on it an app over the batches at `location`; all gone at the end."""
    port = _quiet_port()
    config = location.with_suffix(".yaml")
    settings = {
        "models": [{"name": "sim", "model": SPEC, "num_cpus": 0.5}],
        "gateways": gateways,
        "batches": {"location": str(location), "shard_lines": shard_lines, "poll_s": 0.5},
    }
    config.write_text(json.dumps(settings))  # JSON is YAML
    with started_head() as head:
        serve = ["python", "-m", "raydiff", "serve", f"--config={config}", f"--port={port}"]
        _submit(head, serve)
        app = App(head, f"http://127.0.0.1:{port}", "sim")
        _wait_until_it_serves(app)
        yield app


def _submit(head: Head, entry_point: Sequence[str]) -> None:
    """The job server answers before the agent that starts jobs does."""
    for _ in range(20):
        asked = ("--no-wait", "--submission-id=app", "--", *entry_point)
        done = head.job("submit", *asked, check=False)
        if done.returncode == 0:
            return
        time.sleep(1)
    raise AssertionError(done.stdout + done.stderr)


def _quiet_port() -> int:
    """A free port that no outgoing connection gets until the app binds it."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _wait_until_it_serves(app: App) -> None:
    for _ in range(600):
        with suppress(openai.OpenAIError):
            if app.client.with_options(max_retries=0).models.list().data:
                return
        running = app.head.status("app") in ("PENDING", "RUNNING")
        assert running, app.head.job("status", "app").stdout + app.head.job("logs", "app").stdout
        time.sleep(0.2)
    raise AssertionError(app.head.job("logs", "app").stdout)


def chat_line(number: int, **body: Any) -> dict[str, Any]:
    """A line of a batch's input; `body` changes or adds fields of its body."""
    sound = {
        "model": "sim",
        "messages": [{"role": "user", "content": f"question {number}"}],
        "max_tokens": 8 + number % 8,
        "seed": number,
    }
    return {
        "custom_id": f"id-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {**sound, **body},
    }


def require_each_once(
    lines: Sequence[dict[str, Any]], output: list[dict[str, Any]], errors: list[dict[str, Any]]
) -> None:
    """Every line of the input is in exactly one of the two files, once."""
    ids = Counter(each["custom_id"] for each in (*output, *errors))
    assert ids == Counter(each["custom_id"] for each in lines)

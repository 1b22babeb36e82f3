"""A real Prometheus server scrapes Ray's exporter and answers queries on raydiff's metrics."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from raydiff.launch import RunningApp
from raydiff.launch.ports import free_port
from tests.serve.conftest import MODEL

CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: raydiff
    static_configs:
      - targets: ["{target}"]
"""


@pytest.fixture
def prometheus(serving: RunningApp, tmp_path: Path) -> Iterator[str]:
    """Base URL of a server that scrapes the cluster's node."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no prometheus on this machine; tests/run.sh installs it when it may")
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.format(target=urllib.parse.urlsplit(serving.metrics_url).netloc))
    listen = f"127.0.0.1:{free_port('127.0.0.1')}"
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={listen}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        yield f"http://{listen}"
        process.terminate()


def query(base: str, expression: str) -> list[Any]:
    """The result vector of an instant query; empty while the server starts."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            result: list[Any] = json.load(response)["data"]["result"]
            return result
    except urllib.error.URLError:
        return []


def query_until_answered(base: str, expression: str) -> float:
    """The value of a query that has one series, once it has one."""
    for _ in range(240):
        result = query(base, expression)
        if result:
            return float(result[0]["value"][1])
        time.sleep(0.5)
    raise AssertionError(f"no answer to {expression}")


def test_prometheus_answers_how_many_tokens_and_rows_there_were(
    serving: RunningApp, prometheus: str
) -> None:
    body = {"prompt": ["a", "b"], "max_tokens": 16}
    httpx.post(f"{serving.url}/v1/completions", json=body, timeout=60).raise_for_status()
    selector = f'{{model="{MODEL}"}}'
    tokens = query_until_answered(prometheus, f"sum(ray_raydiff_output_tokens_total{selector})")
    assert tokens >= 32
    rows, forwards = (f"sum(ray_raydiff_{n}_total{selector})" for n in ("forward_rows", "forwards"))
    rows_per_forward = query_until_answered(prometheus, f"{rows} / {forwards}")
    assert rows_per_forward >= 1
    buckets = query_until_answered(
        prometheus,
        f"histogram_quantile(0.5, sum by (le) (ray_raydiff_request_seconds_bucket{selector}))",
    )
    assert buckets > 0

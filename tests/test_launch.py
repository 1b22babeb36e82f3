"""Finding or starting the application: what is in the way, and what is left behind."""

from __future__ import annotations

import http.server
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from raydiff.config import AppSettings, ServeSettings
from raydiff.errors import ClusterError, ModelError, UsageError
from raydiff.launch import cluster, running_app
from raydiff.launch.cluster import join_cluster
from raydiff.launch.ports import free_port, require_free
from raydiff.launch.probe import probe
from tests.processes import descendants, start_raydiff, still_alive, wait_for_text

DEAD = "127.0.0.1:1"
ANYWHERE = ServeSettings(port=0)


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As in a process that has not connected to a cluster."""
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    return monkeypatch


def join(metrics_port: int | None = None, endpoint: ServeSettings = ANYWHERE) -> None:
    join_cluster(cpus=1, endpoint=endpoint, metrics_port=metrics_port)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port with a server of something else, which speaks HTTP/1."""
    handler = http.server.BaseHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.log_message = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_taken_port_is_named_with_the_option_that_changes_it(
    taken_port: int, unconnected: pytest.MonkeyPatch
) -> None:
    unconnected.setenv("RAY_ADDRESS", "local")
    with pytest.raises(ClusterError, match=rf"port {taken_port} .* --port"):
        join(endpoint=ServeSettings(port=taken_port))
    with pytest.raises(ClusterError, match=rf"port {taken_port} .* --metrics-port"):
        join(metrics_port=taken_port)


def test_an_address_of_another_machine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"203\.0\.113\.1"):
        require_free("--port", "203.0.113.1", 8000)


def test_a_free_port_can_be_taken() -> None:
    port = free_port("127.0.0.1")
    require_free("--port", "127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_named_cluster_that_is_dead_is_refused(unconnected: pytest.MonkeyPatch) -> None:
    unconnected.setenv("RAY_ADDRESS", DEAD)
    with pytest.raises(ClusterError, match=rf"RAY_ADDRESS={DEAD}.*RAY_ADDRESS=local"):
        join()


def test_a_server_that_is_no_cluster_is_refused(
    taken_port: int, unconnected: pytest.MonkeyPatch
) -> None:
    unconnected.setenv("RAY_ADDRESS", f"127.0.0.1:{taken_port}")
    with pytest.raises(ClusterError, match="no Ray cluster answers"):
        join()


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "http://127.0.0.1:8265"])
def test_client_and_dashboard_addresses_are_refused(
    unconnected: pytest.MonkeyPatch, address: str
) -> None:
    unconnected.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError, match="ray job submit"):
        join()


def test_the_record_of_a_dead_cluster_is_explained_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(DEAD)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert cluster._recorded_address() is None
    assert DEAD in caplog.text


def test_a_live_cluster_answers_the_probe(ray_cluster: dict[str, Any]) -> None:
    assert probe(ray.get_runtime_context().gcs_address) == "ready"


def test_a_cluster_of_another_version_is_refused(
    ray_cluster: dict[str, Any], tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """The cluster's own record of its versions is changed while another process tries to join."""
    key = {"namespace": "cluster"}
    record = _internal_kv_get(CLUSTER_METADATA_KEY, **key)
    foreign = {**json.loads(record), "python_version": "3.9.0", "ray_version": "2.9.0"}
    output = tmp_path / "output"
    env = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    _internal_kv_put(CLUSTER_METADATA_KEY, json.dumps(foreign).encode(), **key)
    try:
        with output.open("wb") as file:
            process = start_raydiff(["serve", "--model", str(tiny_checkpoint)], file, env)
            assert process.wait(120) == 3
    finally:
        _internal_kv_put(CLUSTER_METADATA_KEY, record, **key)
    text = output.read_text()
    assert "Ray: 2.9.0" in text
    assert "RAY_ADDRESS=local" in text
    assert "Traceback" not in text


@pytest.fixture
def foreign_app(ray_cluster: dict[str, Any]) -> Iterator[None]:
    """Somebody else's application at the root of the cluster's HTTP endpoint."""

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    def hello() -> str:
        return "hello"

    serve.start(http_options={"host": "127.0.0.1", "port": free_port("127.0.0.1")})
    serve.run(hello.bind(), name="theirs", route_prefix="/")
    yield
    serve.shutdown()


def test_an_application_of_somebody_else_is_refused_and_left_alone(
    foreign_app: None, tiny_checkpoint: Path
) -> None:
    with (
        pytest.raises(ClusterError, match="'theirs' at route '/'"),
        running_app(AppSettings(model=str(tiny_checkpoint)), ANYWHERE),
    ):
        pass
    assert serve.status().applications["theirs"].status == "RUNNING"


def test_a_model_that_does_not_load_is_an_error_that_leaves_nothing(
    ray_cluster: dict[str, Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in tiny_checkpoint.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0hello")
    with (
        pytest.raises(ModelError, match=r"model\.safetensors"),
        running_app(AppSettings(model=str(broken)), ANYWHERE),
    ):
        pass
    assert serve.status().applications == {}


PRIVATE = {"RAY_ADDRESS": "local", "RAY_AUTH_MODE": None}
"""A cluster of its own, locked as Ray does by default."""


def test_serve_runs_until_sigterm_and_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    port, metrics_port = free_port("127.0.0.1"), free_port("127.0.0.1")
    args = ["serve", "--model", str(tiny_checkpoint), "--port", str(port)]
    with output.open("wb") as file:
        process = start_raydiff([*args, "--metrics-port", str(metrics_port)], file, PRIVATE)
        try:
            wait_for_text(process, output, "Ctrl-C ends it.")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as health:
                assert health.status == 200
            assert f":{metrics_port}/metrics" in output.read_text()
            _a_second_one_is_refused(args, output.read_text(), tmp_path)
            children = descendants(process.pid)
            assert children
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert still_alive(children) == set()
    assert "Traceback" not in output.read_text()


def _a_second_one_is_refused(args: list[str], banner: str, tmp_path: Path) -> None:
    """It finds the locked cluster by the address the first one printed, with the user's token."""
    address = banner.partition("RAY_ADDRESS=")[2].split()[0]
    output = tmp_path / "second"
    with output.open("wb") as file:
        second = start_raydiff(args, file, {**PRIVATE, "RAY_ADDRESS": address})
        assert second.wait(120) == 3
    assert "already runs application 'raydiff'" in output.read_text()


def test_on_a_cluster_at_hand_only_the_app_and_its_serve_go(
    ray_cluster: dict[str, Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    args = ["serve", "--model", str(tiny_checkpoint), "--port", "0"]
    with output.open("wb") as file:
        env = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        process = start_raydiff(args, file, env)
        try:
            wait_for_text(process, output, "Ctrl-C ends it.")
            assert serve_actors() != []
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "Traceback" not in output.read_text()
    for _ in range(100):
        if serve_actors() == []:
            break
        time.sleep(0.1)
    assert serve_actors() == []


def serve_actors() -> list[str]:
    """Names of Serve's controller, proxies and replicas that live on the cluster."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["name"].startswith("SERVE")]


def test_ctrl_c_while_it_starts_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    args = ["serve", "--model", str(tiny_checkpoint), "--port", "0"]
    with output.open("wb") as file:
        process = start_raydiff(args, file, PRIVATE)
        children: set[int] = set()
        while len(children) < 6 and process.poll() is None:
            children = descendants(process.pid)
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert still_alive(children) == set()
    assert "Traceback" not in output.read_text()


def test_starting_an_application_loads_no_torch() -> None:
    code = "import sys, raydiff.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

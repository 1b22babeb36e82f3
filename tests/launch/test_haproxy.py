"""HAProxy is switched on by its name, and never opens ports to others unasked."""

from __future__ import annotations

import pytest

from raydiff.config import ServeSettings
from raydiff.errors import UsageError
from raydiff.launch.cluster import join_cluster
from raydiff.launch.haproxy import haproxy_environment, require_told


def test_on_the_loopback_interface_it_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--haproxy: .* --host 0\.0\.0\.0"):
        require_told(ServeSettings(haproxy=True))


def test_where_others_may_reach_it_it_is_allowed() -> None:
    require_told(ServeSettings(haproxy=True, host="0.0.0.0"))
    require_told(ServeSettings())


def test_two_on_one_machine_share_neither_ports_nor_files() -> None:
    one, other = haproxy_environment(), haproxy_environment()
    assert one.keys() == other.keys()
    assert one["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    shared = {name for name in one if one[name] == other[name]}
    assert shared == {"RAY_SERVE_ENABLE_HA_PROXY"}


def test_a_running_cluster_cannot_be_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydiff.launch.cluster.ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UsageError, match="RAY_SERVE_ENABLE_HA_PROXY=1"):
        join_cluster(cpus=1, endpoint=ServeSettings(haproxy=True), metrics_port=None)

"""What every test shares: a small Ray cluster of its own, and a tidy environment."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

# Read by Ray and by OpenMP when they start, so they must be set before either is imported.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ.pop("RAY_ADDRESS", None)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[dict[str, Any]]:
    """A local Ray cluster of four logical CPUs, never one that is already there.

    Yields the node's record; its "MetricsExportPort" is where Ray's exporter listens.
    """
    import ray

    temp_dir = tempfile.mkdtemp(prefix="rd-")  # short: sockets in it have at most 107 characters
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=256 * 2**20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=temp_dir,
    )
    try:
        yield ray.nodes()[0]
    finally:
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)


def pytest_sessionfinish() -> None:
    """No Ray that a test started outlives the run."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()

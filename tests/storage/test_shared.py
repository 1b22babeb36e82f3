"""On several nodes a local path is refused, unless it is one disk for all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raydiff.config import StorageSettings
from raydiff.errors import UsageError
from raydiff.storage import LocalFolder, open_folder
from raydiff.storage.shared import Node, living_nodes, require_shared

TWO = [Node("a" * 56, "10.0.0.1"), Node("b" * 56, "10.0.0.2")]


def can_hide_directories() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def test_a_local_path_on_several_nodes_is_refused_by_argument(tmp_path: Path) -> None:
    folders = {"output": LocalFolder(tmp_path)}
    with pytest.raises(UsageError, match="output: expected storage that all 2 nodes") as caught:
        require_shared(folders, shared_filesystem=False, nodes=lambda: TWO)
    assert "s3://" in str(caught.value)
    assert "--shared-filesystem" in str(caught.value)
    assert caught.value.param == "output"


def test_one_node_may_have_local_paths_and_many_an_object_store(tmp_path: Path) -> None:
    local = {"input": LocalFolder(tmp_path)}
    require_shared(local, shared_filesystem=False, nodes=lambda: TWO[:1])
    store = {"input": open_folder("s3://bucket/in", "input", StorageSettings())}
    require_shared(store, shared_filesystem=False, nodes=lambda: TWO)


@pytest.fixture
def blind_node(ray_cluster: dict[str, Any]) -> Iterator[Path]:
    """A second node whose view of one directory, which it yields, is another disk."""
    hidden = Path(tempfile.mkdtemp(prefix="rd-hidden-"))
    address = ray.get_runtime_context().gcs_address
    start = (
        f"mount -t tmpfs tmpfs {hidden} && exec {sys.executable} -m ray.scripts.scripts start "
        f"--address={address} --node-ip-address=127.0.0.1 --num-cpus=1 --block"
    )
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", start],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    )
    try:
        for _ in range(300):
            if len(living_nodes()) == 2 or process.poll() is not None:
                break
            time.sleep(0.1)
        assert len(living_nodes()) == 2
        yield hidden
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(hidden, ignore_errors=True)


@pytest.mark.skipif(not can_hide_directories(), reason="needs a mount namespace, thus root")
def test_a_node_that_does_not_see_the_shared_disk_is_named(
    blind_node: Path, tmp_path: Path
) -> None:
    """Two real nodes: both see `tmp_path`, the second has another disk in place of one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"1")
    seen = {"input": LocalFolder(tmp_path / "in"), "output": LocalFolder(tmp_path)}
    require_shared(seen, shared_filesystem=True)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]

    second = next(n for n in living_nodes() if n.node_id != ray.get_runtime_context().get_node_id())
    with pytest.raises(UsageError, match="do not see") as caught:
        require_shared({"output": LocalFolder(blind_node)}, shared_filesystem=True)
    assert second.node_id[:8] in str(caught.value)
    assert str(caught.value).count("(node ") == 1
    with pytest.raises(UsageError, match="--shared-filesystem"):
        require_shared(seen, shared_filesystem=False)

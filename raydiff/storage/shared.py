"""Whether every node of a Ray cluster sees the same files under a path."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raydiff.errors import ClusterError, UsageError
from raydiff.storage.folder import TEMP_PREFIX, Folder
from raydiff.storage.local import LocalFolder

_TIMEOUT_S = 60.0
_NOTICE_S = 30.0


@dataclass(frozen=True)
class Node:
    """A living node of the cluster."""

    node_id: str
    address: str

    def __str__(self) -> str:
        return f"{self.address} (node {self.node_id[:8]})"


@dataclass(frozen=True)
class Probe:
    """A file that this process sees, and that every node must see alike."""

    path: str
    size_bytes: int


def require_shared(
    folders: Mapping[str, Folder],
    *,
    shared_filesystem: bool,
    nodes: Callable[[], Sequence[Node]] | None = None,
) -> None:
    """Refuse local paths on a cluster of several nodes, unless they are on a shared disk.

    This process must be connected to the cluster. `folders` are named by their argument, and the
    output must exist. With `shared_filesystem`, a task on every node looks for a file of each.

    Raises:
        UsageError: a node does not see a path, or it was not said that all do.
        ClusterError: a node did not answer.
    """
    local = {param: f for param, f in folders.items() if isinstance(f, LocalFolder)}
    found = (nodes or living_nodes)()
    if not local or len(found) < 2:
        return
    if not shared_filesystem:
        param, folder = next(iter(local.items()))
        raise UsageError(
            f"{param}: expected storage that all {len(found)} nodes of the cluster share, got the "
            f"local path {folder.uri}. Use s3://BUCKET/PREFIX, or add --shared-filesystem if the "
            "path is mounted on every node.",
            param,
        )
    for param, folder in local.items():
        with _probe(folder, writable=param == "output") as probe:
            _require_seen(param, folder, probe, found)


def living_nodes() -> list[Node]:
    """Nodes of the cluster this process is connected to."""
    return [Node(n["NodeID"], n["NodeManagerAddress"]) for n in ray.nodes() if n["Alive"]]


@contextmanager
def _probe(folder: LocalFolder, *, writable: bool) -> Iterator[Probe]:
    """A new file of the output; of the input, which may be read-only, one that is there."""
    if not writable:
        entry = next(folder.entries(recursive=True), None)
        # Without its size: it may be a log that grows beside a single input file.
        yield Probe(folder.path(entry.name) if entry else folder.uri, -1)
        return
    name = f"{TEMP_PREFIX}{uuid.uuid4().hex}"
    folder.put(name, name.encode())
    try:
        yield Probe(folder.path(name), len(name))
    finally:
        folder.delete(name)


def _require_seen(param: str, folder: Folder, probe: Probe, nodes: Sequence[Node]) -> None:
    blind = [str(node) for node, seen in zip(nodes, _look(probe, nodes), strict=True) if not seen]
    if blind:
        raise UsageError(
            f"{param}: expected {folder.uri} to be one directory on all {len(nodes)} nodes, as "
            f"--shared-filesystem says, got nodes that do not see {probe.path}: "
            f"{', '.join(blind)}. Mount it there, or use s3://BUCKET/PREFIX.",
            param,
        )


def _look(probe: Probe, nodes: Sequence[Node]) -> list[bool]:
    """Whether each node sees the file."""
    task = ray.remote(num_cpus=0, max_retries=1)(sees)
    looks = [
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        ).remote(probe)
        for node in nodes
    ]
    return [_answer(look, node, probe) for look, node in zip(looks, nodes, strict=True)]


def _answer(look: ray.ObjectRef[bool], node: Node, probe: Probe) -> bool:
    """What a node says, or that it has nothing to say: no worker runs on a node that is gone."""
    try:
        return bool(ray.get(look, timeout=_TIMEOUT_S))
    except ray.exceptions.RayError as error:
        if _is_gone(node):
            return True
        raise ClusterError(
            f"{node} did not say within {_TIMEOUT_S:.0f} s whether it sees {probe.path}: "
            f"{type(error).__name__}. Check it; then run the command again."
        ) from error


def _is_gone(node: Node) -> bool:
    """Whether a node that does not answer is dead; the cluster notices that late."""
    deadline_s = time.monotonic() + _NOTICE_S
    while node.node_id in {living.node_id for living in living_nodes()}:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(1.0)
    return True


def sees(probe: Probe) -> bool:
    """Whether this machine has the file, with the same size."""
    try:
        status = os.stat(probe.path)
    except OSError:
        return False
    return probe.size_bytes < 0 or status.st_size == probe.size_bytes

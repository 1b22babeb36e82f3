"""Commits shards as a worker would, without a model; and folders that count or fail."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from raydiff.corpus.commit import ShardReport, Totals, commit_shard
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.plan import Shard
from raydiff.storage import Entry, Folder, LocalFolder

TOTALS = Totals(prompt_tokens=10, completion_tokens=4, forwards=2)


def tables(shard: Shard, failed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Rows of answers and of errors: the last `failed` documents fail."""
    places = list(shard.places())
    good, bad = places[: len(places) - failed], places[len(places) - failed :]
    identity = [
        pa.table(
            {
                "doc_id": pa.array([f"{file}-{row}" for file, row in rows], pa.string()),
                "source_file": pa.array([file for file, _ in rows], pa.string()),
                "source_row": pa.array([row for _, row in rows], pa.int64()),
            }
        )
        for rows in (good, bad)
    ]
    summaries = pa.array([f"summary of {row}" for _, row in good], pa.string())
    kinds = pa.array(["EmptyDocument"] * len(bad), pa.string())
    messages = pa.array(["The text is empty."] * len(bad), pa.string())
    return (
        identity[0].append_column("summary", summaries),
        identity[1].append_column("error_type", kinds).append_column("error_message", messages),
    )


def commit(folder: Folder, shard: Shard, failed: int = 0) -> ShardReport:
    """Commit one shard."""
    good, bad = tables(shard, failed)
    return commit_shard(folder, shard, good, bad, TOTALS, started_s=time.time() - 1.0)


def commit_all(
    run: RunDirectory, shards: Iterable[Shard] | None = None, *, failed: int = 0, lost: bool = False
) -> None:
    """Commit shards, by default those that are pending; `lost` keeps the reports from the
    ledger, as the death of a driver does."""
    for shard in run.pending if shards is None else shards:
        report = commit(run.folder, shard, failed)
        if not lost:
            run.ledger.add(report)


class Killed(BaseException):
    """The process is gone."""


class WatchedFolder(LocalFolder):
    """Counts what is asked of it, by operation and name, and may be killed at a change."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.changes = 0
        self.kill_at: int | None = None
        """The change (put, create, delete) before which the process dies; counted from 0."""

    @property
    def opened(self) -> set[str]:
        """Names of files that were opened or read."""
        return {name for operation, name in self.asked if operation in ("open", "read")}

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        self.asked["entries", under] += 1
        return super().entries(under, recursive=recursive)

    def open(self, name: str) -> pa.NativeFile:
        self.asked["open", name] += 1
        return super().open(name)

    def put(self, name: str, content: bytes | pa.Buffer) -> None:
        self._change("put", name)
        super().put(name, content)

    def create(self, name: str, content: bytes | pa.Buffer) -> bool:
        self._change("create", name)
        return super().create(name, content)

    def delete(self, name: str) -> None:
        self._change("delete", name)
        super().delete(name)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete(name)

    def _change(self, operation: str, name: str) -> None:
        self.asked[operation, name] += 1
        if self.kill_at == self.changes:
            raise Killed
        self.changes += 1


def kill_everywhere(
    begin: Callable[[], WatchedFolder], act: Callable[[WatchedFolder], None]
) -> Iterator[WatchedFolder]:
    """Does the same from the same beginning, killed before its first change, before its second,
    and so on, until it gets to its end unharmed; gives each folder as the death left it."""
    for kill_at in range(10_000):
        folder = begin()
        folder.changes, folder.kill_at = 0, kill_at
        try:
            act(folder)
        except Killed:
            folder.kill_at = None
            yield folder
        else:
            folder.kill_at = None
            yield folder
            return

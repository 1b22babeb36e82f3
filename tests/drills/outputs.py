"""Where a drill's run writes, seen from outside: local or in S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Output(Protocol):
    """The files of a run directory."""

    location: str
    """As the command takes it."""

    def files(self) -> dict[str, str]:
        """Names of all files, with what changes when one is written again."""

    def table(self, name: str) -> pa.Table:
        """The rows of a Parquet file."""


class LocalOutput:
    """A directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root)

    def files(self) -> dict[str, str]:
        """As `Output`."""
        found = {}
        for path in self.root.rglob("*"):
            try:
                if path.is_file():
                    found[str(path.relative_to(self.root))] = str(path.stat().st_mtime_ns)
            except FileNotFoundError:
                continue
        return found

    def table(self, name: str) -> pa.Table:
        """As `Output`."""
        return pq.read_table(self.root / name)


class S3Output:
    """A prefix of a bucket, read past the proxy."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/"
        self.location = f"s3://{bucket}/{prefix}"

    def files(self) -> dict[str, str]:
        """As `Output`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix
        )
        return {
            item["Key"].removeprefix(self._prefix): f"{item['ETag']} {item['LastModified']}"
            for page in pages
            for item in page.get("Contents", ())
        }

    def table(self, name: str) -> pa.Table:
        """As `Output`."""
        answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
        return pq.read_table(pa.BufferReader(answer["Body"].read()))


def parts(files: dict[str, str]) -> dict[str, str]:
    """Those of the files that are committed shards."""
    return {name: version for name, version in files.items() if name.startswith("part-")}

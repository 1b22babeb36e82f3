"""Commits: one part file per shard, whose name says what it holds.

The errors file is written first, under a name of this attempt only; then the part file in one
atomic step, unless there is one of that name. A shard is committed when its part file is there.
Execution is at least once, so two attempts may both get here: with equal counts the first one
stays, otherwise `settle_parts` keeps the one with fewer errors.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.corpus.parts import ERRORS_FOLDER, Part
from raydiff.corpus.plan import Shard, position_of
from raydiff.storage import Folder

METADATA_KEY = b"raydiff.part"
CHECKSUM_BYTES = 8
"""Enough to notice damage; checksums are most of what a ledger weighs."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What the documents of a shard, or of a run, cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    forwards: int = 0
    duplicates: int = 0
    """Documents whose answer was that of another document with the same text."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            forwards=self.forwards + other.forwards,
            duplicates=self.duplicates + other.duplicates,
        )


@dataclass(frozen=True, kw_only=True)
class PartDetails:
    """What a part file's metadata adds to its name."""

    totals: Totals
    started_s: float
    """Unix time at which reading began."""
    finished_s: float
    """Unix time of the commit."""
    errors_file: str | None = None
    errors_bytes: int = 0
    errors_checksum: str = ""
    error_types: dict[str, int] = field(default_factory=dict)
    """Failed documents by type of error."""

    @classmethod
    def from_json(cls, text: bytes | str) -> PartDetails:
        """The inverse of `json.dumps(asdict(details))`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "totals": Totals(**fields["totals"])})


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What a worker tells the driver of a committed shard, and what the ledger keeps of it."""

    shard_id: str
    rows: int
    errors: int
    totals: Totals
    started_s: float
    """Unix time at which reading began."""
    finished_s: float
    """Unix time of the commit."""
    error_types: dict[str, int] = field(default_factory=dict)
    """Failed documents by type of error."""
    part_bytes: int = 0
    part_checksum: str = ""
    errors_file: str | None = None
    errors_bytes: int = 0
    errors_checksum: str = ""

    @property
    def part(self) -> Part:
        """The part file that it tells of."""
        return shard_part(self.shard_id, self.rows, self.errors)

    def to_json(self) -> str:
        """As a string, which crosses Ray Data without a schema of its own."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardReport:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "totals": Totals(**fields["totals"])})


def shard_part(shard_id: str, rows: int, errors: int) -> Part:
    """The part of one shard."""
    position, digest = position_of(shard_id), int(shard_id.rpartition("-")[2], 16)
    return Part(first=position, last=position, digest=digest, rows=rows, errors=errors)


def commit_shard(
    folder: Folder,
    shard: Shard,
    answers: pa.Table,
    errors: pa.Table,
    totals: Totals,
    *,
    started_s: float,
) -> ShardReport:
    """Make a shard's result durable and visible, both or neither.

    Returns:
        The report of the part that is there now: of an earlier attempt's, where there is one with
        equal counts.
    """
    assert answers.num_rows + errors.num_rows == shard.rows, shard
    errors_content = to_parquet(errors) if errors.num_rows else None
    errors_file = None
    if errors_content is not None:
        errors_file = errors_name(shard.shard_id)
        folder.put(errors_file, errors_content)
    details = PartDetails(
        totals=totals,
        started_s=started_s,
        finished_s=time.time(),
        errors_file=errors_file,
        errors_bytes=len(errors_content) if errors_content is not None else 0,
        errors_checksum=checksum(errors_content) if errors_content is not None else "",
        error_types=count_error_types(errors),
    )
    part = shard_part(shard.shard_id, answers.num_rows, errors.num_rows)
    metadata = {METADATA_KEY: json.dumps(asdict(details)).encode()}
    content = to_parquet(answers.replace_schema_metadata(metadata))
    if folder.create(part.name, content):
        return report_of(part, details, content)
    report = read_report(folder, part)
    # The part may be this attempt's after all: of a large object the store's answer may be lost.
    if errors_file is not None and errors_file != report.errors_file:
        folder.delete(errors_file)
    return report


def errors_name(label: str) -> str:
    """A new name for an errors file."""
    return f"{ERRORS_FOLDER}/errors-{label}-{uuid.uuid4().hex}.parquet"


def count_error_types(errors: pa.Table) -> dict[str, int]:
    """Rows of an errors table by `error_type`."""
    return dict(Counter(str(name) for name in errors.column("error_type").to_pylist()))


def to_parquet(table: pa.Table) -> pa.Buffer:
    """A table as a file's content."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def checksum(content: bytes | pa.Buffer) -> str:
    """Of a file's bytes, in hexadecimal digits."""
    return blake2b(content, digest_size=CHECKSUM_BYTES).hexdigest()


def read_report(folder: Folder, part: Part) -> ShardReport:
    """The report of one shard's part, from the file itself.

    Raises:
        FileNotFoundError: it is gone.
        ValueError: it is damaged.
    """
    content = folder.read(part.name)
    return report_of(part, details_of(content), content)


def read_details(folder: Folder, part: Part) -> PartDetails:
    """Read a part's metadata; its rows stay unread."""
    with folder.open(part.name) as stream:
        return _details(pq.read_metadata(stream))


def details_of(content: bytes) -> PartDetails:
    """The metadata of a part with this content.

    Raises:
        ValueError: it is none.
    """
    try:
        return _details(pq.read_metadata(pa.BufferReader(content)))
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise ValueError(f"it is no part of raydiff's: {error}") from error


def _details(metadata: pq.FileMetaData) -> PartDetails:
    return PartDetails.from_json((metadata.metadata or {})[METADATA_KEY])


def report_of(part: Part, details: PartDetails, content: bytes | pa.Buffer) -> ShardReport:
    """What a part with this metadata and content reports."""
    return ShardReport(
        shard_id=part.label,
        rows=part.rows,
        errors=part.errors,
        totals=details.totals,
        started_s=details.started_s,
        finished_s=details.finished_s,
        error_types=details.error_types,
        part_bytes=len(content),
        part_checksum=checksum(content),
        errors_file=details.errors_file,
        errors_bytes=details.errors_bytes,
        errors_checksum=details.errors_checksum,
    )

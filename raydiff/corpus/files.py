"""The input files of a plan: their facts in a table, and what a later listing says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raydiff.corpus.plan import FileFacts

_FIELDS: Any = [
    pa.field("name", pa.large_string(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("version", pa.large_string(), nullable=False),
    pa.field("rows", pa.int64(), nullable=False),
    pa.field("digest", pa.large_string(), nullable=False),
]
FILES_SCHEMA = pa.schema(_FIELDS)
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How a listing of the input differs from the planned files."""

    added: pa.Array[Any]
    """Names that the plan does not have."""
    removed: pa.Array[Any]
    """Planned names that are not listed."""
    resized: pa.Array[Any]
    """Names of planned files that have another size now."""
    rewritten: pa.Array[Any]
    """Names of planned files of the same size but another version: changed, copied or touched."""


class Files:
    """Facts of the planned files, in the order in which spans refer to them."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    @classmethod
    def of(cls, facts: Sequence[FileFacts]) -> Files:
        """A table of these facts."""
        columns: Any = [[getattr(fact, name) for fact in facts] for name in FILES_SCHEMA.names]
        return cls(pa.table(columns, schema=FILES_SCHEMA))

    @property
    def names(self) -> pa.Array[Any]:
        """Names by index."""
        names: pa.Array[Any] = _column(self.table, "name")
        return names

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return int(pc.sum(self.table["rows"]).as_py() or 0)

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return int(pc.sum(self.table["size_bytes"]).as_py() or 0)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[FileFacts]:
        return (
            FileFacts(**row)
            for batch in self.table.to_batches(max_chunksize=1024)
            for row in batch.to_pylist()
        )

    def changes(self, listing: pa.Table) -> Changes:
        """What a listing with the columns `name`, `size_bytes` and `version` says."""
        listed = _column(listing, "name")
        at = pc.index_in(self.names, value_set=listed)
        found = at.is_valid()
        here = self.table.filter(found)
        now = listing.take(at.drop_null())
        same_size = _same(here, now, "size_bytes")
        same_version = _same(here, now, "version")
        return Changes(
            added=listed.filter(pc.invert(pc.is_in(listed, value_set=self.names))),
            removed=self.names.filter(pc.invert(found)),
            resized=_column(here, "name").filter(pc.invert(same_size)),
            rewritten=_column(here, "name").filter(pc.and_not(same_size, same_version)),
        )

    def digests(self, names: pa.Array[Any]) -> dict[str, str]:
        """Saved digests of some files."""
        found = self.table.filter(pc.is_in(self.names, value_set=names))
        columns: list[Any] = [found[name].to_pylist() for name in ("name", "digest")]
        return dict(zip(*columns, strict=True))

    def with_versions(self, listing: pa.Table) -> Files:
        """The same files with the versions of a listing that has them all."""
        at = pc.index_in(self.names, value_set=_column(listing, "name"))
        versions = _column(listing, "version").take(at)
        index = self.table.schema.get_field_index("version")
        return Files(self.table.set_column(index, FILES_SCHEMA.field("version"), versions))


def some_names(names: Sequence[str] | pa.Array[Any]) -> str:
    """The first few names, and how many more there are."""
    shown = [str(name) for name in names[:_NAMED]]
    rest = len(names) - len(shown)
    return f"{', '.join(shown)} and {rest} more" if rest else ", ".join(shown)


def _column(table: pa.Table, name: str) -> Any:
    """A column in one piece, with the type that it has here."""
    column: Any = table[name].combine_chunks()
    kind: Any = FILES_SCHEMA.field(name).type
    return column.cast(kind)


def _same(a: pa.Table, b: pa.Table, name: str) -> Any:
    compare: Any = pc.equal
    return compare(_column(a, name), _column(b, name))

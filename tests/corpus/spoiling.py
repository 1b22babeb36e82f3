"""Input files that were damaged after they were written."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def spoil_pages(path: Path) -> None:
    """Overwrite the text column's first pages, leaving the footer whole."""
    metadata = pq.read_metadata(path)
    index = metadata.schema.names.index("text")
    chunk = metadata.row_group(0).column(index)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)

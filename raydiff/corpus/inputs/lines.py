"""Lines of a byte stream, in memory bounded by the longest that is accepted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

MAX_RECORD_BYTES = 64 * 2**20
"""A longer record is an error row; what is beyond is passed over, not held."""

UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_CHUNK_BYTES = 2**20


def split_lines(
    stream: pa.NativeFile, max_bytes: int = MAX_RECORD_BYTES, chunk_bytes: int = _CHUNK_BYTES
) -> Iterator[tuple[bytes | None, int]]:
    """Each line with its end, and its length in bytes; `None` in place of one that is too long.

    Lines end with a line feed. The last one may have no end.
    """
    parts: list[bytes] = []
    size = 0
    while chunk := stream.read(chunk_bytes):
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            piece = chunk[start:end]
            start = end
            if not size:
                yield piece, len(piece)
                continue
            size += len(piece)
            yield (b"".join([*parts, piece]) if size <= max_bytes else None), size
            parts, size = [], 0
        rest = chunk[start:]
        size += len(rest)
        if size > max_bytes:
            parts.clear()
        elif rest:
            parts.append(rest)
    if size:
        yield (b"".join(parts) if size <= max_bytes else None), size

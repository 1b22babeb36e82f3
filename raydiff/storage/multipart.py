"""Large objects: sent in parts, seen when the last one is there, given up when one fails."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from raydiff.errors import RaydiffError

_PART_BYTES = 16 * 2**20
_MAX_PARTS = 10_000
_STARTS = 3


class Call(Protocol):
    """One request about an object, repeated while that may help."""

    def __call__(self, operation: str, name: str, **arguments: Any) -> dict[str, Any]: ...


def upload_in_parts(
    call: Call,
    name: str,
    content: bytes | pa.Buffer,
    *,
    most_bytes: int,
    only_new: bool = False,
) -> None:
    """Write an object of any size in one visible step; parts have `most_bytes` at most.

    Raises:
        ClientError: `only_new`, and there is an object of that name (HTTP 412).
        StorageError: the store refused or is out of reach; nothing of the upload is left, unless
            the store does not even take that request.
    """
    view = memoryview(content)
    size = max(min(most_bytes, _PART_BYTES), -(-len(view) // _MAX_PARTS))
    for start in range(_STARTS):
        upload = call("create_multipart_upload", name)["UploadId"]
        try:
            parts = _send(call, name, view, size, upload)
            condition = {"IfNoneMatch": "*"} if only_new else {}
            call(
                "complete_multipart_upload",
                name,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **condition,
            )
            return
        except FileNotFoundError:
            # The upload is gone: it was completed and the answer lost, or somebody gave it up.
            # Writing the same object again is right in both cases.
            if start == _STARTS - 1:
                raise
        except BaseException:
            with suppress(RaydiffError, OSError):
                call("abort_multipart_upload", name, UploadId=upload)
            raise


def _send(call: Call, name: str, view: memoryview, size: int, upload: str) -> list[dict[str, Any]]:
    parts = []
    for number, start in enumerate(range(0, len(view), size), 1):
        body = bytes(view[start : start + size])
        answer = call("upload_part", name, UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    return parts


def abort_uploads(call: Call, uploads: Iterable[tuple[str, str]]) -> int:
    """Give up unfinished uploads, as names with upload ids; returns how many."""
    aborted = 0
    for name, upload in uploads:
        with suppress(FileNotFoundError):
            call("abort_multipart_upload", name, UploadId=upload)
            aborted += 1
    return aborted

"""The folder behind what the user typed."""

from __future__ import annotations

from raydiff.config import StorageSettings
from raydiff.errors import InputError
from raydiff.storage.address import (
    S3_SCHEME,
    S3Address,
    require_endpoint,
    scheme_of,
)
from raydiff.storage.folder import Folder
from raydiff.storage.local import LocalFolder, local_path
from raydiff.storage.s3 import S3Folder


def open_folder(location: str, param: str, storage: StorageSettings) -> Folder:
    """The folder at a path or at an `s3://` address. Nothing is asked of an object store yet.

    Raises:
        InputError: there is no store of that kind, or the address holds credentials; `param`
            names the argument.
        UsageError: the endpoint cannot be one.
    """
    if scheme_of(location) == S3_SCHEME:
        return S3Folder(S3Address.parse(location, param), storage)
    if "@" in (storage.endpoint_url or ""):
        require_endpoint(storage.endpoint_url)  # it would be saved with the settings of the run
    return LocalFolder(local_path(location, param))


def require_outside(output: Folder, source: Folder) -> None:
    """Refuse an output inside the directory that is read.

    Raises:
        InputError: its files would become input.
    """
    if _is_inside(output, source):
        raise InputError(
            f"output: {output.uri} lies inside the input {source.uri}; its files would become "
            "input. Choose a directory outside it.",
            "output",
        )


def _is_inside(inner: Folder, outer: Folder) -> bool:
    if isinstance(inner, S3Folder) and isinstance(outer, S3Folder):
        same = (inner.address.bucket, inner.storage.endpoint_url) == (
            outer.address.bucket,
            outer.storage.endpoint_url,
        )
        return same and inner.address.prefix.startswith(outer.address.prefix)
    if isinstance(inner, LocalFolder) and isinstance(outer, LocalFolder):
        target, source = inner.root.resolve(), outer.root.resolve()
        return source.is_dir() and (target == source or source in target.parents)
    return False

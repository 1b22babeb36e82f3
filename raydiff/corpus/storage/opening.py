"""The folder behind what the user typed."""

from __future__ import annotations

from raydiff.config import StorageSettings
from raydiff.corpus.storage.address import S3_SCHEME, S3Address, scheme_of
from raydiff.corpus.storage.folder import Folder
from raydiff.corpus.storage.local import LocalFolder, local_path
from raydiff.corpus.storage.s3 import S3Folder


def open_folder(location: str, param: str, storage: StorageSettings) -> Folder:
    """The folder at a path or at an `s3://` address. Nothing is asked of an object store yet.

    Raises:
        InputError: there is no store of that kind, or the address holds credentials; `param`
            names the argument.
        UsageError: the endpoint cannot be one.
    """
    if scheme_of(location) == S3_SCHEME:
        return S3Folder(S3Address.parse(location, param), storage)
    return LocalFolder(local_path(location, param))

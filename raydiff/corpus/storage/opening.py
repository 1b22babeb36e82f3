"""The folder behind what the user typed."""

from __future__ import annotations

from raydiff.config import StorageSettings
from raydiff.corpus.storage.folder import Folder
from raydiff.corpus.storage.local import LocalFolder, local_path


def open_folder(location: str, param: str, storage: StorageSettings) -> Folder:
    """The folder at a path or an address.

    Raises:
        InputError: there is no store of that kind; `param` names the argument.
    """
    return LocalFolder(local_path(location, param))

"""Storage: the only room that knows where a run's files are."""

from raydiff.storage.folder import Entry, Folder
from raydiff.storage.holding import Hold, find_holder, hold
from raydiff.storage.local import LocalFolder, local_path
from raydiff.storage.opening import open_folder, require_outside

__all__ = [
    "Entry",
    "Folder",
    "Hold",
    "LocalFolder",
    "find_holder",
    "hold",
    "local_path",
    "open_folder",
    "require_outside",
]

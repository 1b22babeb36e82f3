"""Storage: the only room that knows where a run's files are."""

from raydiff.corpus.storage.folder import Entry, Folder
from raydiff.corpus.storage.holding import Hold, find_holder, hold
from raydiff.corpus.storage.local import LocalFolder, local_path
from raydiff.corpus.storage.opening import open_folder, require_outside

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

"""Storage: the only room that knows where a run's files are."""

from raydiff.corpus.storage.folder import Entry, Folder
from raydiff.corpus.storage.local import DirectoryLock, LocalFolder, local_path
from raydiff.corpus.storage.opening import open_folder

__all__ = ["DirectoryLock", "Entry", "Folder", "LocalFolder", "local_path", "open_folder"]

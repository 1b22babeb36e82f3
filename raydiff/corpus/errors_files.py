"""Errors files that no part names: attempts that did not get to their commit leave them."""

from __future__ import annotations

import re

import numpy as np

from raydiff.corpus.commit import read_details
from raydiff.corpus.parts import ERRORS, ERRORS_FOLDER, Committed, Part
from raydiff.storage import Folder


def remove_unnamed_errors(folder: Folder, committed: Committed) -> int:
    """Delete errors files that no committed part names; returns how many."""
    unnamed = unnamed_errors(folder, committed)
    folder.delete_many(unnamed)
    return len(unnamed)


def unnamed_errors(folder: Folder, committed: Committed) -> list[str]:
    """Errors files that no committed part names.

    A part is opened only where it has several errors files.
    """
    unnamed: list[str] = []
    candidates: dict[int, list[str]] = {}
    for entry in folder.entries(ERRORS_FOLDER):
        index = _owner(committed, entry.name)
        if index is None:
            if re.fullmatch(ERRORS, entry.name):
                unnamed.append(entry.name)
        else:
            candidates.setdefault(index, []).append(entry.name)
    for index, names in candidates.items():
        if len(names) > 1:
            named = read_details(folder, committed.part(index)).errors_file
            unnamed += [name for name in names if name != named]
    return sorted(unnamed)


def _owner(committed: Committed, name: str) -> int | None:
    """Index of the part that may name an errors file, by the shards in its name."""
    match = re.fullmatch(ERRORS, name)
    if match is None or not len(committed):
        return None
    first = int(match["first"])
    index = int(np.searchsorted(committed.table["first"], first, side="right")) - 1
    if index < 0:
        return None
    part: Part = committed.part(index)
    last = int(match["last"] or first)
    digest = int(match["digest"], 16) if match["digest"] else None
    same = (part.first, part.last, part.digest) == (first, last, digest)
    return index if same and part.errors else None

"""Names in a folder, and pages of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydiff.storage import Folder
from raydiff.storage.folder import is_own


def listed(folder: Folder, under: str) -> list[str]:
    """Sorted names of the files in a directory, without the directory's."""
    names = (name for name in folder.names(under) if not is_own(name))
    return sorted(name.rpartition("/")[2] for name in names)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A stretch of a listing."""

    ids: Sequence[str]
    has_more: bool


def page(ids: Sequence[str], *, after: str | None, limit: int, newest_first: bool = True) -> Page:
    """The ids that follow `after`, which need not be there any more. `ids` are oldest first."""
    ordered = sorted(ids, reverse=newest_first)
    if after is not None:
        ordered = [name for name in ordered if (name < after if newest_first else name > after)]
    return Page(ids=ordered[:limit], has_more=len(ordered) > limit)

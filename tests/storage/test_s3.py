"""Listings and deletions of any size go in batches, one request each."""

from __future__ import annotations

import pytest

from raydiff.storage import s3
from raydiff.storage.s3 import S3Folder

from .proxy import FaultProxy

NAMES = [f"attempts/{i:02d}" for i in range(10)]


@pytest.fixture
def filled(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> S3Folder:
    monkeypatch.setattr(s3, "_LIST_BATCH", 4)
    monkeypatch.setattr(s3, "_DELETE_BATCH", 4)
    for name in NAMES:
        folder.put(name, b"")
    return folder


def test_a_listing_is_asked_for_page_by_page_as_it_is_used(
    filled: S3Folder, proxy: FaultProxy
) -> None:
    before = proxy.counts.total()
    entries = filled.entries("attempts")
    first = next(entries)
    assert proxy.counts.total() - before == 1
    assert [first.name, *(entry.name for entry in entries)] == NAMES
    assert proxy.counts.total() - before == 3


def test_many_files_are_deleted_in_a_request(filled: S3Folder, proxy: FaultProxy) -> None:
    before = proxy.counts.total()
    filled.delete_many(NAMES)
    assert proxy.counts.total() - before == 3
    assert filled.names("attempts") == []


def test_a_directory_is_removed_whatever_its_size(filled: S3Folder, proxy: FaultProxy) -> None:
    filled.put("attempts-2", b"")
    proxy.slow_down = 0.3
    filled.remove("attempts")
    assert [entry.name for entry in filled.entries(recursive=True)] == ["attempts-2"]


def test_marks_of_directories_are_no_files(folder: S3Folder, proxy: FaultProxy) -> None:
    """Consoles and copying tools leave empty objects named like directories."""
    folder.put("sub/", b"")
    folder.put("sub/a", b"")
    assert [entry.name for entry in folder.entries(recursive=True)] == ["sub/a"]
    assert folder.names("sub") == ["sub/a"]

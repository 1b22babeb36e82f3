"""A file appears whole or not at all; one driver writes to a directory at a time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raydiff.errors import RunConflict, UsageError
from raydiff.storage import LocalFolder, hold


def test_put_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.put("a.json", b"one")
    folder.put("a.json", b"two")
    assert folder.read("a.json") == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_put_changes_nothing(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.put("a.json", b"one")
    with pytest.raises(TypeError):
        folder.put("a.json", "not bytes")  # type: ignore[arg-type]  # provokes a failing write
    assert folder.read("a.json") == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_create_writes_once_on_a_disk_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    folder = LocalFolder(tmp_path)
    assert folder.create("a", b"first")
    assert not folder.create("a", b"second")
    assert folder.read("a") == b"first"
    assert folder.names() == ["a"]


def test_names_are_sorted_files_of_one_level(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.make("errors")
    for name in ("b", "a", "errors/c"):
        folder.put(name, b"")
    assert folder.names() == ["a", "b"]
    assert folder.names("errors") == ["errors/c"]
    assert folder.names("absent") == []


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    (tmp_path / ".tmp-0123").write_bytes(b"half a part")
    folder.put("part", b"whole")
    assert folder.remove_leftovers() == 1
    assert folder.names() == ["part"]


def test_a_second_driver_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with hold(folder), pytest.raises(RunConflict, match="another raydiff process"):
        hold(folder).__enter__()
    with hold(folder):
        pass


def test_a_directory_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made a directory"):
        LocalFolder(tmp_path / "file" / "below").make()

"""Every kind of folder keeps the same promises."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from raydiff.storage import Folder, LocalFolder


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "disk":
        return LocalFolder(tmp_path)
    found: Folder = request.getfixturevalue("folder")
    return found


def test_what_was_put_is_read_and_replaced(store: Folder) -> None:
    store.make("sub")
    store.put("sub/a b%ü.json", b"one")
    store.put("sub/a b%ü.json", pa.py_buffer(b"two"))
    assert store.read("sub/a b%ü.json") == b"two"
    assert store.exists("sub/a b%ü.json")
    assert not store.exists("sub")
    assert not store.exists("sub/a")


def test_create_writes_once(store: Folder) -> None:
    assert store.create("a", b"first")
    assert not store.create("a", b"second")
    assert store.read("a") == b"first"


def test_a_file_that_is_not_there_is_named(store: Folder) -> None:
    for read in (store.read, store.open):
        with pytest.raises(FileNotFoundError, match="absent"):
            read("absent.parquet")


def test_listings_are_of_one_level_or_of_all(store: Folder) -> None:
    store.make("sub/deep")
    for name in ("b", "a", "sub/c", "sub/deep/d"):
        store.put(name, b"x" * len(name))
    assert store.names() == ["a", "b"]
    assert store.names("sub") == ["sub/c"]
    assert store.names("absent") == []
    assert store.names("su") == []
    found = {entry.name: entry.size_bytes for entry in store.entries(recursive=True)}
    assert found == {"a": 1, "b": 1, "sub/c": 5, "sub/deep/d": 10}
    assert [entry.name for entry in store.entries("sub/deep", recursive=True)] == ["sub/deep/d"]


def test_a_file_written_again_has_another_version(store: Folder) -> None:
    def version() -> str:
        return next(entry.version for entry in store.entries())

    store.put("a", b"one")
    before = version()
    assert version() == before
    store.put("a", b"two")
    assert version() != before


def test_files_are_deleted_whether_they_are_there_or_not(store: Folder) -> None:
    store.make("sub")
    for name in ("a", "b", "sub/c", "sub/d"):
        store.put(name, b"")
    store.delete("a")
    store.delete("a")
    store.delete_many(["b", "absent"])
    assert store.names() == []
    store.remove("sub")
    store.remove("sub")
    assert list(store.entries(recursive=True)) == []


def test_files_are_read_at_random(store: Folder) -> None:
    content = os.urandom(100_000)
    store.put("a", content)
    with store.open("a") as stream:
        assert stream.size() == len(content)
        stream.seek(70_000)
        assert stream.read(10) == content[70_000:70_010]
        assert stream.read_at(5, 3) == content[3:8]
        stream.seek(99_990)
        assert stream.read(100) == content[-10:]
        assert stream.read(100) == b""


def test_a_folder_is_the_same_in_another_process(store: Folder) -> None:
    store.put("a", b"one")
    other = pickle.loads(pickle.dumps(store))
    assert other.uri == store.uri
    assert other.read("a") == b"one"

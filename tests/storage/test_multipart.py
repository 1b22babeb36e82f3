"""Large files appear at once, and what fails on the way leaves nothing behind."""

from __future__ import annotations

import os

import pytest

from raydiff.errors import StorageError
from raydiff.storage.s3 import S3Folder

from .conftest import MakeFolder
from .proxy import FaultProxy
from .server import S3Server

PART = 5 * 2**20
CONTENT = os.urandom(2 * PART + 1000)


@pytest.fixture
def folder(make_folder: MakeFolder) -> S3Folder:
    return make_folder(multipart_bytes=PART)


def unfinished(server: S3Server, folder: S3Folder) -> list[str]:
    answer = server.client().list_multipart_uploads(
        Bucket=folder.address.bucket, Prefix=folder.address.prefix
    )
    return [upload["Key"] for upload in answer.get("Uploads", ())]


@pytest.mark.parametrize("fault", ["slow_down", "lose_answer"])
def test_a_large_file_is_whole_whatever_its_parts_went_through(
    folder: S3Folder, proxy: FaultProxy, server: S3Server, fault: str
) -> None:
    setattr(proxy, fault, 0.4)
    folder.put("large", CONTENT)
    proxy.heal()
    assert folder.read("large") == CONTENT
    assert next(folder.entries()).version.endswith('-3"')
    assert proxy.counts[fault] > 0
    folder.remove_leftovers()
    assert unfinished(server, folder) == []


def test_a_large_file_is_created_once(folder: S3Folder, server: S3Server) -> None:
    assert folder.create("large", CONTENT)
    assert not folder.create("large", bytes(len(CONTENT)))
    assert folder.read("large") == CONTENT
    assert unfinished(server, folder) == []


def test_an_upload_that_fails_is_given_up(
    make_folder: MakeFolder, proxy: FaultProxy, server: S3Server
) -> None:
    folder = make_folder(multipart_bytes=PART, patience_s=0.5)
    folder.put("large", b"old")
    proxy.only, proxy.slow_down = "partNumber=2", 1.0
    with pytest.raises(StorageError, match=r"UploadPart .* SlowDown"):
        folder.put("large", CONTENT)
    assert folder.read("large") == b"old"
    assert unfinished(server, folder) == []


def test_uploads_of_killed_writers_are_given_up_and_no_others(
    make_folder: MakeFolder, folder: S3Folder, server: S3Server
) -> None:
    client, other = server.client(), make_folder(under="other/")
    for each in (folder, other):
        for name in ("a", "errors/b"):
            key = f"{each.address.prefix}{name}"
            client.create_multipart_upload(Bucket=each.address.bucket, Key=key)
    assert folder.remove_leftovers() == 2
    assert unfinished(server, folder) == []
    assert len(unfinished(server, other)) == 2

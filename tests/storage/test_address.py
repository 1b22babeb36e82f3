"""Addresses are taken apart once, and no secret in them is ever repeated."""

from __future__ import annotations

import pytest

from raydiff.config import StorageSettings
from raydiff.errors import InputError, UsageError
from raydiff.storage import LocalFolder, open_folder, require_outside
from raydiff.storage.address import S3Address


@pytest.mark.parametrize(
    ("location", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket/a/b c", "my.bucket", "a/b c/"),
        ("s3://bucket//a//b/", "bucket", "a/b/"),
    ],
)
def test_addresses_have_a_bucket_and_a_prefix(location: str, bucket: str, prefix: str) -> None:
    address = S3Address.parse(location, "input")
    assert (address.bucket, address.prefix) == (bucket, prefix)


@pytest.mark.parametrize("location", ["s3://", "s3:///a", "s3://a", "s3://b!d/a", "s3://bkt/../a"])
def test_what_is_no_address_is_refused(location: str) -> None:
    with pytest.raises(InputError, match="output: expected") as caught:
        open_folder(location, "output", StorageSettings())
    assert caught.value.param == "output"


@pytest.mark.parametrize(
    "location", ["s3://AKIAKEY:hunter2@bucket/a", "s3://hunter2@bucket", "gs://u:hunter2@bucket/a"]
)
def test_credentials_in_an_address_are_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InputError, match="input: expected") as caught:
        open_folder(location, "input", StorageSettings())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://u:hunter2@host", "host:9000", "ftp://host", "http://h/x"])
def test_an_endpoint_is_a_scheme_and_a_host(url: str) -> None:
    with pytest.raises(UsageError, match="endpoint_url: expected") as caught:
        open_folder("s3://bucket/a", "input", StorageSettings(endpoint_url=url))
    assert "hunter2" not in str(caught.value)


def test_credentials_in_an_endpoint_get_into_no_run_on_a_disk() -> None:
    storage = StorageSettings(endpoint_url="https://u:hunter2@host")
    with pytest.raises(UsageError, match="credentials") as caught:
        open_folder("/data/out", "output", storage)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("output", "source", "inside"),
    [
        ("s3://bucket/in/out", "s3://bucket/in", True),
        ("s3://bucket/in", "s3://bucket/in", True),
        ("s3://bucket/in", "s3://bucket", True),
        ("s3://bucket/in-2", "s3://bucket/in", False),
        ("s3://other/in/out", "s3://bucket/in", False),
        ("/data/out", "s3://bucket/in", False),
    ],
)
def test_an_output_inside_the_input_is_refused(output: str, source: str, inside: bool) -> None:
    folders = [open_folder(each, "output", StorageSettings()) for each in (output, source)]
    if not inside:
        require_outside(*folders)
        return
    with pytest.raises(InputError, match="lies inside the input"):
        require_outside(*folders)


def test_a_path_and_a_file_address_are_the_same_folder() -> None:
    paths = [open_folder(each, "input", StorageSettings()) for each in ("/a/b", "file:///a/b")]
    assert [p.uri for p in paths] == ["/a/b", "/a/b"]
    assert all(isinstance(p, LocalFolder) for p in paths)

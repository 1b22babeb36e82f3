"""What trying again cannot mend fails at once, in words, and without secrets."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raydiff.errors import StorageError
from raydiff.storage.s3 import S3Folder

from .conftest import MakeFolder
from .proxy import FaultProxy, fault_proxy
from .server import S3Server


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    """Of a new address: clients that know it do not have the credentials of another test."""
    with fault_proxy(server.url) as started:
        yield started


def operations(folder: S3Folder) -> list[Callable[[], object]]:
    return [
        lambda: list(folder.entries()),
        lambda: folder.read("a"),
        lambda: folder.open("a"),
        lambda: folder.put("a", b""),
        lambda: folder.exists("a"),
        lambda: folder.delete_many(["a"]),
        folder.make,
        folder.remove_leftovers,
    ]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StorageError) as caught:
        call()
    return str(caught.value)


def test_a_wrong_secret_is_refused_at_once_and_not_repeated(
    make_folder: MakeFolder, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    folder = make_folder()
    for call in operations(folder):
        before = proxy.counts.total()
        message = refusal(call)
        assert proxy.counts.total() - before <= 2
        assert "HTTP 403" in message
        assert folder.address.bucket in message
        assert "credentials" in message
        assert "hunter2" not in message


def test_missing_credentials_are_named_with_where_to_put_them(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    message = refusal(lambda: make_folder().names())
    assert "NoCredentialsError" in message
    assert "AWS_PROFILE" in message
    assert "--anonymous-input" in message


def test_a_bucket_that_does_not_exist_is_named(make_folder: MakeFolder, proxy: FaultProxy) -> None:
    folder = make_folder("no-such-bucket")
    calls = (folder.make, folder.names, lambda: folder.put("a", b""), lambda: folder.exists("a"))
    for call in calls:
        before = proxy.counts.total()
        message = refusal(call)
        assert proxy.counts.total() - before <= 2
        assert "s3://no-such-bucket/" in message
        assert "NoSuchBucket" in message
        assert proxy.url in message


def test_a_public_bucket_is_read_without_credentials_and_not_written(
    make_folder: MakeFolder, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = server.make_bucket()
    server.client().put_bucket_policy(Bucket=bucket, Policy=server.public_policy(bucket))
    make_folder(bucket).put("a", b"one")
    for name in server.env:
        monkeypatch.delenv(name)
    public = make_folder(bucket, anonymous=True)
    assert public.names() == ["a"]
    assert public.open("a").read() == b"one"
    assert "HTTP 403" in refusal(lambda: public.put("b", b""))


def test_credentials_of_a_profile_file_serve_both_libraries(
    make_folder: MakeFolder, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    path = tmp_path / "credentials"
    path.write_text(
        f"[lab]\naws_access_key_id={server.access_key}\naws_secret_access_key={server.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    folder = make_folder()
    folder.put("a", b"one")
    assert folder.open("a").read() == b"one"


def test_nothing_that_travels_or_is_printed_holds_a_secret(
    folder: S3Folder, server: S3Server
) -> None:
    folder.put("a", b"")
    shown = repr(folder) + folder.storage.model_dump_json() + folder.path("a")
    travels = pickle.dumps(folder).decode("latin-1")
    for secret in (server.secret_key, server.access_key):
        assert secret not in shown
        assert secret not in travels

"""One S3 server for all tests of storage, behind a proxy that is well when a test begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raydiff.config import StorageSettings
from raydiff.storage.address import S3Address
from raydiff.storage.s3 import S3Folder

from ..corpus.conftest import toy_model, write_corpus
from .proxy import FaultProxy, fault_proxy
from .server import S3Server, s3_server

__all__ = ["toy_model", "write_corpus"]

MakeFolder = Callable[..., S3Folder]


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture(scope="session")
def bucket(server: S3Server) -> str:
    return server.make_bucket()


@pytest.fixture(scope="session")
def shared_proxy(server: S3Server) -> Iterator[FaultProxy]:
    """One address for all tests, so that each process makes its clients once."""
    with fault_proxy(server.url) as started:
        yield started


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> Iterator[FaultProxy]:
    shared_proxy.start_over()
    yield shared_proxy
    shared_proxy.heal()


@pytest.fixture
def credentials(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that may use the server, and no other source of credentials."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def make_folder(
    proxy: FaultProxy, bucket: str, credentials: None, request: pytest.FixtureRequest
) -> MakeFolder:
    """A folder of this test's own, reached through the proxy."""

    def make(bucket: str = bucket, under: str = "run/", **settings: object) -> S3Folder:
        storage = StorageSettings.model_validate(
            {"endpoint_url": proxy.url, "patience_s": 30, **settings}
        )
        return S3Folder(S3Address(bucket, f"{request.node.name}/{under}"), storage)

    return make


@pytest.fixture
def folder(make_folder: MakeFolder) -> S3Folder:
    return make_folder()

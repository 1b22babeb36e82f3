"""Folders of a bucket. pyarrow reads data, boto3 does the rest; every request is repeated while
the store is throttling, failing or away."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import pyarrow as pa
from botocore.exceptions import ClientError

from raydiff.config import StorageSettings
from raydiff.errors import StorageError
from raydiff.storage.address import S3Address, require_endpoint
from raydiff.storage.clients import s3_client, s3_filesystem
from raydiff.storage.folder import Entry
from raydiff.storage.multipart import abort_uploads, upload_in_parts
from raydiff.storage.patience import Request, is_unmet_condition, patiently
from raydiff.storage.reader import S3Reader

_T = TypeVar("_T")

_LIST_BATCH = 1000
_DELETE_BATCH = 1000
"""The most that S3 allows."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """An object as it was at one time."""

    content: bytes
    etag: str
    age_s: float
    """Since it was written, by the store's own clock, to the second."""


class S3Folder:
    """All objects of a bucket whose keys begin with a prefix. Safe to use from several threads."""

    is_local = False

    def __init__(self, address: S3Address, storage: StorageSettings) -> None:
        """No request is made.

        Raises:
            UsageError: the endpoint cannot be one.
        """
        require_endpoint(storage.endpoint_url)
        self.address = address
        self.storage = storage

    def __reduce__(self) -> tuple[type[S3Folder], tuple[S3Address, StorageSettings]]:
        return S3Folder, (self.address, self.storage)

    def __repr__(self) -> str:
        return f"S3Folder({self.uri!r})"

    @property
    def uri(self) -> str:
        """The address, `s3://bucket/prefix`."""
        return self.address.uri

    def path(self, name: str) -> str:
        """The object's address, for messages."""
        return f"s3://{self.address.bucket}/{self._key(name)}"

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        """Files in `under`, page by page in the order of their keys; none if there are none."""
        prefix = self._prefix(under)
        where: dict[str, Any] = {"Prefix": prefix, "MaxKeys": _LIST_BATCH}
        if not recursive:
            where["Delimiter"] = "/"
        for page in self._pages("list_objects_v2", "ContinuationToken", under, where):
            for item in page.get("Contents", ()):
                # Some tools mark a directory by an empty object of its name.
                if not item["Key"].endswith("/"):
                    name = item["Key"].removeprefix(self.address.prefix)
                    yield Entry(name=name, size_bytes=item["Size"], version=item["ETag"])

    def names(self, under: str = "") -> list[str]:
        """Sorted names of the files directly in `under`."""
        return sorted(entry.name for entry in self.entries(under))

    def open(self, name: str) -> pa.NativeFile:
        """A random-access reader, which goes on where a broken connection left it.

        Raises:
            FileNotFoundError: there is no such object.
            StorageError: the store refused or is out of reach.
        """
        filesystem = s3_filesystem(self.storage, self.address.bucket)
        path = f"{self.address.bucket}/{self._key(name)}"
        reader = S3Reader(
            open_file=lambda: filesystem.open_input_file(path),
            head=lambda: self._etag(name),
            uri=self.path(name),
            patience_s=self.storage.patience_s,
        )
        return pa.PythonFile(reader, mode="r")

    def read(self, name: str) -> bytes:
        """The whole content of an object.

        Raises:
            FileNotFoundError: there is no such object.
        """
        return self.read_version(name).content

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self._etag(name)
        except FileNotFoundError:
            self.make()  # says so if it is the bucket that is not there
            return False
        return True

    def put(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a whole object in one atomic step, replacing an older one of that name."""
        if len(content) > self.storage.multipart_bytes:
            upload_in_parts(self._call, name, content, most_bytes=self.storage.multipart_bytes)
        else:
            self._call("put_object", name, Body=bytes(content))

    def create(self, name: str, content: bytes | pa.Buffer) -> bool:
        """Write a whole object unless there is one of that name; returns whether it did.

        When the answer to a write is lost, an object with this very content counts as written:
        content that must be told from another writer's needs something unique in it. For a large
        object, written in parts, a lost answer may make it say no although it did write.
        """
        most_bytes = self.storage.multipart_bytes
        if len(content) <= most_bytes:
            return self.put_if(name, bytes(content), etag=None) is not None
        try:
            upload_in_parts(self._call, name, content, most_bytes=most_bytes, only_new=True)
        except ClientError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Remove an object if it is there."""
        self._call("delete_object", name)

    def delete_many(self, names: Iterable[str]) -> None:
        """Remove those of the objects that are there, a thousand in a request."""
        pending = iter(names)
        while batch := list(itertools.islice(pending, _DELETE_BATCH)):
            keys = [{"Key": self._key(name)} for name in batch]
            answer = self._call("delete_objects", "", Delete={"Objects": keys, "Quiet": True})
            for failed in answer.get("Errors", ()):
                # Alone, it is repeated when that may help, and its error has an explanation.
                self.delete(failed["Key"].removeprefix(self.address.prefix))

    def remove(self, under: str) -> None:
        """Delete all objects below `under`."""
        self.delete_many(entry.name for entry in self.entries(under, recursive=True))

    def make(self, under: str = "") -> None:
        """Check that the bucket can be reached; a store has no directories to create.

        Raises:
            StorageError: it cannot.
        """
        self._call("list_objects_v2", under, Prefix=self._prefix(under), MaxKeys=1)

    def remove_leftovers(self, under: str = "", listed: Iterable[str] | None = None) -> int:
        """Give up uploads in parts that killed writers left unfinished; returns how many."""
        where = {"Prefix": self._prefix(under)}
        pages = self._pages("list_multipart_uploads", "KeyMarker", under, where)
        uploads = ((item["Key"], item["UploadId"]) for p in pages for item in p.get("Uploads", ()))
        here = ((key.removeprefix(self.address.prefix), upload) for key, upload in uploads)
        return abort_uploads(self._call, here)

    def read_version(self, name: str) -> Version:
        """An object's content with what identifies it.

        Raises:
            FileNotFoundError: there is no such object.
        """

        def fetch() -> Version:
            answer = self._client.get_object(Bucket=self.address.bucket, Key=self._key(name))
            with closing(answer["Body"]) as body:
                content: bytes = body.read()
            return Version(content=content, etag=answer["ETag"], age_s=_age_s(answer))

        return self._patiently(fetch, "get_object", name)

    def put_if(self, name: str, content: bytes, etag: str | None) -> str | None:
        """Write an object if it is the version with that ETag, or if `None`, if there is none.

        Returns:
            The ETag of what was written; `None` if the condition did not hold.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        tries = itertools.count()

        def write() -> str | None:
            again = next(tries) > 0
            try:
                answer = self._client.put_object(
                    Bucket=self.address.bucket, Key=self._key(name), Body=content, **condition
                )
            except ClientError as error:
                if is_unmet_condition(error):
                    return self._etag_of_own(name, content) if again else None
                raise
            return str(answer["ETag"])

        try:
            return self._patiently(write, "put_object", name)
        except FileNotFoundError:
            return None  # no object to match: an answer of some stores

    def _etag_of_own(self, name: str, content: bytes) -> str | None:
        """ETag of the object if an earlier try wrote it and its answer was lost."""
        try:
            found = self.read_version(name)
        except FileNotFoundError:
            return None
        return found.etag if found.content == content else None

    def delete_if(self, name: str, etag: str) -> bool:
        """Remove an object if it is the version with that ETag; returns whether it is gone."""
        try:
            self._call("delete_object", name, IfMatch=etag)
        except ClientError:
            return False
        except FileNotFoundError:
            return True
        return True

    @property
    def _client(self) -> Any:
        return s3_client(self.storage)

    def _prefix(self, under: str) -> str:
        return self.address.prefix + (f"{under.rstrip('/')}/" if under else "")

    def _key(self, name: str) -> str:
        return self.address.prefix + name

    def _etag(self, name: str) -> str:
        return str(self._call("head_object", name)["ETag"])

    def _call(self, operation: str, name: str, **arguments: Any) -> dict[str, Any]:
        """One request about an object, or about the bucket when it has no key."""
        method = getattr(self._client, operation)
        if operation not in _OF_BUCKET:
            arguments["Key"] = self._key(name)

        def call() -> dict[str, Any]:
            answer: dict[str, Any] = method(Bucket=self.address.bucket, **arguments)
            return answer

        return self._patiently(call, operation, name)

    def _patiently(self, call: Callable[[], _T], operation: str, name: str) -> _T:
        shown = "".join(word.capitalize() for word in operation.split("_"))
        request = Request(shown, self.path(name), str(self._client.meta.endpoint_url))
        return patiently(call, request, self.storage.patience_s)

    def _pages(
        self, operation: str, token: str, under: str, arguments: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Answers of a listing, each asked for when it is needed."""
        while True:
            page = self._call(operation, under, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            for name in (token, "UploadIdMarker"):
                if following := page.get(f"Next{name}"):
                    arguments = {**arguments, name: following}


_OF_BUCKET = frozenset({"list_objects_v2", "list_multipart_uploads", "delete_objects"})


def _age_s(answer: dict[str, Any]) -> float:
    written: datetime = answer["LastModified"]
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is None:
        raise StorageError(
            "The store's answer has no Date header, by which the age of a lease is measured. "
            "Check the endpoint."
        )
    return (parsedate_to_datetime(date) - written).total_seconds()

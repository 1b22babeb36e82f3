"""What the user typed, taken apart: `s3://bucket/prefix`, never with a secret in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from raydiff.errors import InputError, UsageError, invalid

S3_SCHEME = "s3://"
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_CREDENTIALS_REMEDY = (
    "Give credentials by environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), by profile "
    "(AWS_PROFILE) or by the machine's role."
)


@dataclass(frozen=True)
class S3Address:
    """A directory of a bucket."""

    bucket: str
    prefix: str
    """What the keys in the directory begin with: empty, or ending in `/`."""

    @property
    def uri(self) -> str:
        return f"{S3_SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    @classmethod
    def parse(cls, location: str, param: str) -> S3Address:
        """The address in `location`.

        Raises:
            InputError: it is none, or holds credentials, which the message does not repeat.
        """
        bucket, _, path = location.removeprefix(S3_SCHEME).partition("/")
        if "@" in bucket:
            raise InputError(
                f"{param}: expected s3://BUCKET/PREFIX, got an address with credentials in it "
                f"(not repeated here). {_CREDENTIALS_REMEDY}",
                param,
            )
        if not _BUCKET.fullmatch(bucket):
            raise InputError(invalid(param, expected="s3://BUCKET/PREFIX", got=location), param)
        parts = [part for part in path.split("/") if part]
        if {".", ".."} & set(parts):
            expected = "an address without . and .. (a store has no such directories)"
            raise InputError(invalid(param, expected=expected, got=location), param)
        return cls(bucket, "".join(f"{part}/" for part in parts))


def scheme_of(location: str) -> str:
    """`s3://` and the like in lower case; empty for a path."""
    match = _SCHEME.match(location)
    return match[0].lower() if match else ""


def require_endpoint(url: str | None) -> None:
    """Check the address of an S3-compatible store.

    Raises:
        UsageError: it is none, or holds credentials, which the message does not repeat.
    """
    if url is None:
        return
    expected = "http://HOST[:PORT] or https://HOST[:PORT]"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if "@" in url:
        raise UsageError(
            f"endpoint_url: expected {expected}, got an address with credentials in it (not "
            f"repeated here). {_CREDENTIALS_REMEDY}",
            "endpoint_url",
        )
    if not valid or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UsageError(invalid("endpoint_url", expected=expected, got=url), "endpoint_url")

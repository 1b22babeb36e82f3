"""API keys: how one is made, how it is kept, and the entries of a key file.

A key is 256 random bits, so nobody finds it by trying, and a single SHA-256 keeps it as safe as a
slow or salted hash would: those protect passwords, which people choose and repeat. It also costs
a request a microsecond.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from raydiff.errors import UsageError, invalid
from raydiff.serve.access.caller import ANONYMOUS, Caller, Limits

PREFIX = "rd-"
KEY_BYTES = 32
_HASH = r"^sha256:[0-9a-f]{64}$"
_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_Limit = Annotated[int, Field(ge=1, strict=True)]


class KeyEntry(BaseModel):
    """One key of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: str = Field(pattern=_ID)
    """Its name in logs and metrics."""
    hash: str = Field(pattern=_HASH, repr=False)
    """Of the key, as `hash_of` writes it."""
    expires: AwareDatetime | None = None
    """When it stops working, with the time zone."""
    models: tuple[str, ...] = ("*",)
    lane: Literal["interactive", "batch"] | None = None
    requests_per_minute: _Limit | None = None
    tokens_per_minute: _Limit | None = None
    concurrent_requests: _Limit | None = None

    def caller(self) -> Caller:
        """The caller that whoever has the key is."""
        limits = Limits(
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            concurrent_requests=self.concurrent_requests,
        )
        return Caller(key_id=self.id, models=self.models, lane=self.lane, limits=limits)

    def expired(self, now: datetime) -> bool:
        """Whether it no longer works."""
        return self.expires is not None and self.expires <= now


class _KeyFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: tuple[KeyEntry, ...]


def new_key() -> str:
    """A fresh key."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def hash_of(key: str) -> str:
    """What stands for a key in a file."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def entries_of(value: Any, name: str) -> tuple[KeyEntry, ...]:
    """The keys in what a file holds: a mapping with a list `keys`.

    Raises:
        UsageError: an entry is wrong; the message names the field of which entry, and never
            repeats a value, because a key may stand there by mistake.
    """
    try:
        entries = _KeyFile.model_validate(value).keys
    except ValidationError as error:
        raise UsageError(f"{name}: {_reason(error)}", "keys") from None
    unique(entries, name)
    return entries


def unique(entries: tuple[KeyEntry, ...], name: str) -> None:
    """Check entries against each other.

    Raises:
        UsageError: two have the same id or key, or one the reserved id.
    """
    ids: set[str] = set()
    owners: dict[str, str] = {}
    for entry in entries:
        if entry.id in ids:
            expected = "a different one per key"
            raise UsageError(invalid(f"{name}: id", expected=expected, got=entry.id))
        if entry.id == ANONYMOUS:
            expected = "another one: it stands for callers without a key"
            raise UsageError(invalid(f"{name}: id", expected=expected, got=entry.id))
        other = owners.setdefault(entry.hash, entry.id)
        if other != entry.id:
            raise UsageError(f"{name}: {other!r} and {entry.id!r} have the same hash.")
        ids.add(entry.id)


def utc_now() -> datetime:
    """The time by which keys expire."""
    return datetime.now(UTC)


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "file"
    if first["type"] == "extra_forbidden":
        # by number only: a misplaced key may be the field's name
        known = ", ".join(KeyEntry.model_fields)
        owner = ".".join(str(part) for part in first["loc"][:-1]) or "file"
        return f"{owner}: unknown field. An entry has {known}; a file has keys."
    if first["type"] == "string_pattern_mismatch" and path.endswith(".hash"):
        return f"{path}: expected sha256: and 64 hexadecimal digits, as `raydiff keys new` prints."
    return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}."

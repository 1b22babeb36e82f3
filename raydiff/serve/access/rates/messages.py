"""What gateways and the authority tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Resource = Literal["requests", "tokens"]


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one gateway used of a key's requests or tokens."""

    limit: int
    """Per minute, over all gateways."""
    used: Mapping[int, int]
    """Amounts of the last minute, by second of Unix time; all of them, each time."""
    held: int
    """Leased and not used."""
    need: int = 0
    """More that a request waits for."""


@dataclass(frozen=True, kw_only=True)
class Seats:
    """Requests in flight of a key at one gateway."""

    limit: int
    """Over all gateways."""
    held: int
    """Seats of this gateway, taken or free."""
    need: int = 0
    """More that a request waits for."""


@dataclass(frozen=True, kw_only=True)
class KeyReport:
    """One gateway's account of one key."""

    key_id: str
    uses: Mapping[Resource, Use] = field(default_factory=dict)
    seats: Seats | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """One gateway's account of some keys."""

    gateway: str
    number: int
    """Grows with each report, so that one that comes late is known."""
    keys: tuple[KeyReport, ...]
    returning: bool = False
    """Whether this gateway had no answer for a while, as others may have had."""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a gateway may use of a key's requests or tokens."""

    granted: int
    """Added to what it holds."""
    remaining: int
    """Left of the limit, with all that this gateway holds."""
    wait_s: float
    """Until what was needed and not granted could be."""
    reset_s: float
    """Until the whole limit is free, if nothing more is used."""


@dataclass(frozen=True, kw_only=True)
class KeyReply:
    """The authority's answer for one key."""

    grants: Mapping[Resource, Grant] = field(default_factory=dict)
    seats: int = 0
    """Seats added to those it holds."""
    complete: bool = True
    """Whether all that was needed was granted."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The authority's answer; `keys` is empty while it has not heard of all gateways again."""

    keys: Mapping[str, KeyReply] = field(default_factory=dict)


class Link(Protocol):
    """The way to the authority."""

    async def exchange(self, report: Report) -> Reply:
        """Report, and learn what may be used.

        Raises:
            ConnectionError: there is no answer.
        """

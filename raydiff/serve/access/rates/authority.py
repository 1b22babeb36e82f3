"""The authority: adds up all gateways' uses of each key, and leases what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from raydiff.serve.access.rates.messages import (
    Grant,
    KeyReply,
    KeyReport,
    Reply,
    Report,
    Resource,
    Seats,
    Use,
)
from raydiff.serve.access.rates.window import SLOTS, Window, slot_of, wait_s

SETTLE_S = 3.0
"""How long an authority that was started, or out of reach, only listens: in that time every gateway
has reported again."""
LEASE_PARTS = 50
"""A lease is at most one part of so many of the limit, unless a single request needs more."""
GONE_S = 10.0
"""A gateway not heard of for so long is gone, and its seats are free."""


@dataclass
class _Share:
    """One gateway's part of a key's requests or tokens."""

    window: Window = field(default_factory=Window)
    held: int = 0
    leased_at: int = 0
    """The second of its last lease. What a gateway that is gone still holds counts as used then."""

    def amounts(self, now_s: float) -> list[tuple[int, int]]:
        amounts = list(self.window.amounts(now_s).items())
        if self.held and self.leased_at > slot_of(now_s) - SLOTS:
            amounts.append((self.leased_at, self.held))
        return amounts


@dataclass
class _Key:
    shares: dict[Resource, dict[str, _Share]] = field(default_factory=dict)
    seats: dict[str, int] = field(default_factory=dict)


class Authority:
    """Holds no secret and no file; limits come with the reports."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started_s = clock()
        self._keys: dict[str, _Key] = {}
        self._numbers: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}

    def exchange(self, report: Report) -> Reply:
        """Take note of a report and lease what it needs, as far as limits allow."""
        now_s = self._clock()
        if report.number <= self._numbers.get(report.gateway, -1):
            return Reply()
        self._numbers[report.gateway] = report.number
        self._heard_s[report.gateway] = now_s
        if report.returning:
            self._started_s = now_s
        settling = now_s - self._started_s < SETTLE_S
        replies = {k.key_id: self._key(report.gateway, k, now_s, settling) for k in report.keys}
        self._forget(now_s)
        return Reply() if settling else Reply(keys=replies)

    def _key(self, gateway: str, report: KeyReport, now_s: float, settling: bool) -> KeyReply:
        key = self._keys.setdefault(report.key_id, _Key())
        for resource, use in report.uses.items():
            share = key.shares.setdefault(resource, {}).setdefault(gateway, _Share())
            share.window.replace(use.used)
            share.held = use.held
            share.leased_at = slot_of(now_s)
        if report.seats is not None:
            key.seats[gateway] = report.seats.held
        if settling:
            return KeyReply()
        # a request needs all that it asks for: what only a part is there for is left to others
        seats = _new_seats(key, report.seats)
        free = {r: u.limit - _total(key.shares[r], now_s) for r, u in report.uses.items()}
        fits = (report.seats is None or seats >= report.seats.need) and all(
            free[r] >= u.need for r, u in report.uses.items()
        )
        grants = {
            r: _grant(key.shares[r], gateway, u, free[r], fits, now_s)
            for r, u in report.uses.items()
        }
        seats = seats if fits else 0
        if report.seats is not None:
            key.seats[gateway] += seats
        return KeyReply(grants=grants, seats=seats, complete=fits)

    def _forget(self, now_s: float) -> None:
        """Drop gateways that are gone, once nothing of theirs counts any more."""
        for gateway, heard_s in list(self._heard_s.items()):
            if now_s - heard_s > GONE_S:
                for key in self._keys.values():
                    key.seats.pop(gateway, None)
            if now_s - heard_s > SLOTS + GONE_S:
                for key in self._keys.values():
                    for shares in key.shares.values():
                        shares.pop(gateway, None)
                del self._heard_s[gateway]
                self._numbers.pop(gateway, None)


def _grant(
    shares: dict[str, _Share], gateway: str, use: Use, free: int, fits: bool, now_s: float
) -> Grant:
    share = shares[gateway]
    granted = 0
    if fits and use.need:
        ahead = use.limit // LEASE_PARTS - use.held
        granted = min(free, max(use.need, ahead))
        share.held += granted
    amounts = [a for s in shares.values() for a in s.amounts(now_s)]
    return Grant(
        granted=granted,
        remaining=max(0, free - granted + share.held),
        wait_s=wait_s(amounts, use.need - free, now_s),
        reset_s=wait_s(amounts, sum(n for _, n in amounts), now_s),
    )


def _new_seats(key: _Key, seats: Seats | None) -> int:
    if seats is None:
        return 0
    return max(0, min(seats.need, seats.limit - sum(key.seats.values())))


def _total(shares: dict[str, _Share], now_s: float) -> int:
    return sum(amount for share in shares.values() for _, amount in share.amounts(now_s))

"""What one gateway knows of one key: its own uses, its leases, and what the authority said last."""

from __future__ import annotations

import asyncio
import math

from raydiff.serve.access.caller import Limits
from raydiff.serve.access.rates.messages import Grant, KeyReply, KeyReport, Resource, Seats, Use
from raydiff.serve.access.rates.window import SLOTS, Window, wait_s

IDLE_S = 1.0
"""A lease that nothing was taken from for so long goes back."""


class Meter:
    """A key's requests or tokens at this gateway."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.window = Window()
        self._taken_s = -math.inf
        self._leased_s = -math.inf
        self._since = 0
        self._remaining = limit
        self._reset_at_s = 0.0
        self._answered_s = -math.inf

    def take(self, amount: int, now_s: float) -> int:
        """Use an amount; the slot is what a refund takes."""
        self.held = max(0, self.held - amount)
        self._since += amount
        self._taken_s = now_s
        return self.window.add(now_s, amount)

    def refund(self, slot: int, amount: int) -> None:
        """Take back what was charged in vain; the authority learns of it with the next report."""
        self.window.refund(slot, amount)
        self._since = max(0, self._since - amount)

    def use(self, now_s: float, amount: int = 0) -> Use:
        """What to report, with a request for `amount` that waits."""
        if not amount and now_s - max(self._taken_s, self._leased_s) > IDLE_S:
            self.held = 0
        used = dict(self.window.amounts(now_s))
        need = max(0, amount - self.held)
        return Use(limit=self.limit, used=used, held=self.held, need=need)

    def answered(self, grant: Grant, now_s: float) -> None:
        """Take note of what the authority says."""
        if grant.granted:
            self.held += grant.granted
            self._leased_s = now_s
        self._remaining, self._since = grant.remaining, 0
        self._answered_s = now_s
        self._reset_at_s = now_s + grant.reset_s

    def allows_alone(self, amount: int, now_s: float, gateways: int) -> bool:
        """Whether this gateway admits an amount while the authority is away.

        For a minute it splits what was left with the others; then it keeps to an equal part of
        the limit, at least 1. So a key that is in use stays so, and all gateways together keep
        close to the limit.
        """
        if now_s - self._answered_s < SLOTS:
            return amount <= max(self.held, self._remaining // gateways - self._since)
        share = max(1, self.limit // gateways)
        return amount <= share - self.window.total(now_s)

    def wait_alone_s(self, amount: int, now_s: float) -> float:
        """While the authority is away: seconds until an amount may fit again."""
        excess = max(amount, self.window.total(now_s) + amount - self.limit)
        return max(1.0, wait_s(self.window.amounts(now_s).items(), excess, now_s))

    def remaining(self, now_s: float) -> int:
        """What is left of the limit, as far as this gateway knows."""
        if now_s - self._answered_s >= SLOTS:
            return max(0, self.limit - self.window.total(now_s))
        return max(0, self._remaining - self._since)

    def reset_s(self, now_s: float) -> float:
        """Seconds until the whole limit is free again, if nothing more is used."""
        own = self._taken_s + SLOTS - now_s if self.window.total(now_s) else 0.0
        return max(0.0, own, self._reset_at_s - now_s)

    def live(self, now_s: float) -> bool:
        """Whether the authority must know of it."""
        return self.held > 0 or now_s - self._taken_s <= SLOTS + 1


class KeyMeter:
    """All limits of one key at this gateway."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.lock = asyncio.Lock()
        """Held while a report of this key is on its way."""
        self.meters: dict[Resource, Meter] = {}
        self.seat_limit: int | None = None
        self.seats = 0
        """Of those of the key that are this gateway's, taken or free."""
        self.in_flight = 0
        self.reported_s = -math.inf

    def set_limits(self, limits: Limits) -> None:
        """Follow the key file; what was used counts against new limits too."""
        self._set("requests", limits.requests_per_minute)
        self._set("tokens", limits.tokens_per_minute)
        self.seat_limit = limits.concurrent_requests

    def holds(self, amounts: dict[Resource, int]) -> bool:
        """Whether what was leased suffices for a request."""
        seated = self.seat_limit is None or self.seats > self.in_flight
        return seated and all(self.meters[r].held >= n for r, n in amounts.items())

    def allows_alone(self, amounts: dict[Resource, int], now_s: float, gateways: int) -> bool:
        """As `Meter.allows_alone`, for all limits."""
        share = 0 if self.seat_limit is None else max(1, self.seat_limit // gateways)
        seated = self.seat_limit is None or self.in_flight < max(share, self.seats)
        return seated and all(
            self.meters[r].allows_alone(n, now_s, gateways) for r, n in amounts.items()
        )

    def report(self, now_s: float, amounts: dict[Resource, int] | None = None) -> KeyReport:
        """The account of this key, with the amounts of a request that waits, if one does."""
        self.reported_s = now_s
        if amounts is None:
            self.seats = self.in_flight
        uses = {r: m.use(now_s, (amounts or {}).get(r, 0)) for r, m in self.meters.items()}
        seats = None
        if self.seat_limit is not None:
            need = int(amounts is not None and self.seats <= self.in_flight)
            seats = Seats(limit=self.seat_limit, held=self.seats, need=need)
        return KeyReport(key_id=self.key_id, uses=uses, seats=seats)

    def answered(self, reply: KeyReply, now_s: float) -> None:
        """Take note of what the authority says."""
        self.seats += reply.seats
        for resource, grant in reply.grants.items():
            if resource in self.meters:
                self.meters[resource].answered(grant, now_s)

    def live(self, now_s: float) -> bool:
        """Whether the authority must know of it."""
        return self.seats > 0 or any(meter.live(now_s) for meter in self.meters.values())

    def _set(self, resource: Resource, limit: int | None) -> None:
        if limit is None:
            self.meters.pop(resource, None)
        elif resource not in self.meters:
            self.meters[resource] = Meter(limit)
        else:
            self.meters[resource].limit = limit

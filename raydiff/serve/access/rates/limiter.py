"""One gateway's side of the limits: admits, charges and settles."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack

from raydiff.serve.access.caller import Caller
from raydiff.serve.access.rates.messages import KeyReply, KeyReport, Link, Reply, Report, Resource
from raydiff.serve.access.rates.meter import KeyMeter
from raydiff.serve.access.rates.refusals import Refused, headers, refusal, require_possible

REPORT_S = 1.0
"""How often a key that was used lately is reported, and how often a lost authority is called."""
REFUSED_S = 0.5
"""How long a refusal stands without asking again."""
MISSED_S = 2.0
"""Without an answer for longer than this, what others used meanwhile may be unknown too."""
ASKED_AT_MOST = 4
"""Calls for one request: smaller ones may take a lease while it is on its way."""

_log = logging.getLogger(__name__)


class Limiter:
    """Holds keys to their limits together with the limiters of the other gateways.

    While the authority does not answer, each gateway keeps to its part of what is left
    (`Meter.allows_alone`). To refuse everyone would make of a lost limiter a lost service; to
    admit everyone would let a single customer have the fleet.
    """

    def __init__(
        self, link: Link, *, gateways: int, clock: Callable[[], float] = time.time
    ) -> None:
        """`gateways` is their number, this one included."""
        self._link = link
        self._gateways = gateways
        self._clock = clock
        self._name = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._keys: dict[str, KeyMeter] = {}
        self._refused: dict[str, Refused] = {}
        self._away = False
        self._answered = False
        self._called_s = float("-inf")
        self._lost_s: float | None = None

    async def admit(self, caller: Caller, tokens: int) -> Ticket:
        """Let a request of at most so many tokens in, and charge it.

        Raises:
            HttpRefusal: a limit is reached (429), or the request exceeds it even alone (400).
        """
        require_possible(caller.limits, tokens)
        key = self._keys.get(caller.key_id)
        if key is None:
            key = self._keys[caller.key_id] = KeyMeter(caller.key_id)
        key.set_limits(caller.limits)
        wanted: dict[Resource, int] = {"requests": 1, "tokens": tokens}
        amounts = {r: n for r, n in wanted.items() if r in key.meters}
        if not self._may_enter(key, amounts):
            self._repeat_refusal(key, amounts)
            async with key.lock:
                await self._enter(key, amounts)
        return self._take(key, amounts)

    async def report(self) -> None:
        """Tell the authority of all keys that were used lately; to be called every `REPORT_S`."""
        now_s = self._clock()
        due = [
            key
            for key in self._keys.values()
            if key.live(now_s) and now_s - key.reported_s >= REPORT_S and not key.lock.locked()
        ]
        async with AsyncExitStack() as stack:
            for key in due:
                await stack.enter_async_context(key.lock)
            if due:
                await self._exchange([key.report(now_s) for key in due])
        self._keys = {name: key for name, key in self._keys.items() if self._keeps(key, now_s)}

    def _may_enter(self, key: KeyMeter, amounts: dict[Resource, int]) -> bool:
        if not self._away:
            return key.holds(amounts)
        return key.allows_alone(amounts, self._clock(), self._gateways)

    def _repeat_refusal(self, key: KeyMeter, amounts: dict[Resource, int]) -> None:
        """Refuse without asking what was refused a moment ago."""
        refused = self._refused.get(key.key_id)
        if refused is not None and refused.stands(amounts, self._clock()):
            raise refusal(key, refused, self._clock())

    async def _enter(self, key: KeyMeter, amounts: dict[Resource, int]) -> None:
        """Ask for what a request needs, and wait until it may be taken."""
        reply = None
        for _ in range(ASKED_AT_MOST):
            if self._may_enter(key, amounts):
                self._refused.pop(key.key_id, None)
                return
            now_s = self._clock()
            if self._away and now_s - self._called_s < REPORT_S:
                break
            reply = (await self._exchange([key.report(now_s, amounts)])).get(key.key_id)
            if reply is not None and not reply.complete:
                break
        if self._may_enter(key, amounts):
            return
        now_s = self._clock()
        refused = Refused.of(key, amounts, reply, now_s, REFUSED_S)
        self._refused[key.key_id] = refused
        raise refusal(key, refused, now_s)

    async def _exchange(self, reports: list[KeyReport]) -> dict[str, KeyReply]:
        self._called_s = now_s = self._clock()
        lost_s = self._lost_s
        report = Report(
            gateway=self._name,
            number=next(self._numbers),
            keys=tuple(reports),
            returning=lost_s is not None and now_s - lost_s > MISSED_S,
        )
        try:
            reply = await self._link.exchange(report)
            self._lost_s = None
        except ConnectionError as error:
            self._lost_s = now_s if lost_s is None else lost_s
            self._went(away=True, reason=str(error))
            return {}
        self._went(away=not reply.keys, reason="it was started a moment ago")
        return self._note(reply)

    def _note(self, reply: Reply) -> dict[str, KeyReply]:
        now_s = self._clock()
        for name, answer in reply.keys.items():
            self._keys[name].answered(answer, now_s)
        return dict(reply.keys)

    def _went(self, *, away: bool, reason: str) -> None:
        self._answered = self._answered or not away
        if away and not self._away and self._answered:
            _log.warning("The limiter does not answer (%s): each gateway keeps its part.", reason)
        elif self._away and not away:
            _log.warning("The limiter answers again.")
        self._away = away

    def _take(self, key: KeyMeter, amounts: dict[Resource, int]) -> Ticket:
        now_s = self._clock()
        slots = {r: key.meters[r].take(n, now_s) for r, n in amounts.items()}
        key.in_flight += 1
        return Ticket(self, key, slots.get("tokens"), amounts.get("tokens", 0), now_s)

    def _keeps(self, key: KeyMeter, now_s: float) -> bool:
        return key.live(now_s) or key.in_flight > 0 or key.lock.locked()

    def leave(self, key: KeyMeter, slot: int | None, refund: int) -> None:
        """A request is over; some of what it was charged comes back."""
        key.in_flight -= 1
        if slot is not None and refund > 0 and "tokens" in key.meters:
            key.meters["tokens"].refund(slot, refund)
        self._refused.pop(key.key_id, None)


class Ticket:
    """A request that was let in."""

    def __init__(
        self, limiter: Limiter, key: KeyMeter, slot: int | None, tokens: int, now_s: float
    ) -> None:
        self._limiter = limiter
        self._key = key
        self._slot = slot
        self._tokens = tokens
        self._over = False
        self.headers = headers(key, now_s)
        """How much is left to the key."""

    def settle(self, used_tokens: int) -> None:
        """The request is over and has used so many tokens; only the first call counts."""
        if self._over:
            return
        self._over = True
        self._limiter.leave(self._key, self._slot, self._tokens - used_tokens)

"""`KeyedAccess`: the door that opens to API keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

from starlette.requests import HTTPConnection

from raydiff.config import AccessSettings
from raydiff.errors import DeadlineExceeded, RequestCancelled, UsageError
from raydiff.request import GenerationRequest, Usage
from raydiff.serve.access.caller import Caller
from raydiff.serve.access.credentials import bearer_key, wrong_key
from raydiff.serve.access.door import FREE, Access, Admission, OpenAccess, tokens_asked
from raydiff.serve.access.keyring import Keyring
from raydiff.serve.access.rates import Limiter
from raydiff.serve.access.rates.limiter import REPORT_S, Ticket
from raydiff.serve.access.rates.messages import Link
from raydiff.serve.access.sizes import check_rows


class KeyedAccess:
    """Serves whoever has a key, within its limits. Belongs to one event loop."""

    def __init__(self, settings: AccessSettings, keyring: Keyring, limiter: Limiter) -> None:
        self._settings = settings
        self._keyring = keyring
        self._limiter = limiter
        self._reporting: asyncio.Task[None] | None = None

    async def caller(self, connection: HTTPConnection) -> Caller:
        found = await self._keyring.find(bearer_key(connection.headers))
        if found is None:
            raise wrong_key()
        connection.state.key_id = found.key_id
        return found

    def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AbstractAsyncContextManager[Admission]:
        check_rows(requests, self._settings.max_rows, self._settings.max_prompt_tokens)
        if not caller.limits.any:
            return nullcontext(FREE)
        return self._within_limits(caller, requests)

    @asynccontextmanager
    async def _within_limits(
        self, caller: Caller, requests: Sequence[GenerationRequest]
    ) -> AsyncIterator[Admission]:
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report())
        ticket = await self._limiter.admit(caller, tokens_asked(requests))
        metered = Metered(ticket, requests)
        try:
            yield metered
        except (DeadlineExceeded, RequestCancelled):
            # the work up to then was done: a short deadline is no way to texts for nothing
            raise
        except Exception:
            ticket.settle(metered.used)
            raise
        finally:
            ticket.settle(metered.charged)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S / 2)
            await self._limiter.report()


class Metered:
    """An admission that counts what its rows used."""

    def __init__(self, ticket: Ticket, requests: Sequence[GenerationRequest]) -> None:
        self.headers = ticket.headers
        self.used = 0
        """Tokens of the rows that are done."""
        self.charged = tokens_asked(requests)
        """Those, and all that the other rows were charged."""
        self._max_tokens = max((r.decoding.max_tokens or 0 for r in requests), default=0)

    def spent(self, usage: Usage) -> None:
        self.used += usage.prompt_tokens + usage.completion_tokens
        self.charged -= max(0, self._max_tokens - usage.completion_tokens)


def access_of(settings: AccessSettings, link: Link | None, gateways: int) -> Access:
    """The door that the settings describe; with keys, `link` leads to the limits' authority.

    Raises:
        UsageError: the key file cannot be read or is wrong.
    """
    if settings.keys_file is None:
        return OpenAccess(settings)
    if link is None:
        raise UsageError("access: keys need a limiter, and the application has none.", "access")
    keyring = Keyring(Path(settings.keys_file), reload_s=settings.reload_s)
    return KeyedAccess(settings, keyring, Limiter(link, gateways=gateways))

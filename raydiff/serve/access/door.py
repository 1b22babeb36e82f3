"""`Access`: what the gateway asks before it serves anyone, and the answer of an open door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from starlette.requests import HTTPConnection

from raydiff.config import AccessSettings
from raydiff.request import GenerationRequest, Usage
from raydiff.serve.access.caller import Caller
from raydiff.serve.access.sizes import check_rows


class Admission(Protocol):
    """A request that was let in, for as long as it runs."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What to add to the response: how much is left to the caller."""

    def spent(self, usage: Usage) -> None:
        """A row is done and cost this; called once per row. What was charged beyond is given back
        at the end; rows of which nothing is said cost what they were charged."""


class Access(Protocol):
    """Decides who is served."""

    async def caller(self, connection: HTTPConnection) -> Caller:
        """Who sends this request. The id is noted in `connection.state.key_id` for the log.

        Raises:
            HttpRefusal: it carries no valid key (401).
        """

    def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AbstractAsyncContextManager[Admission]:
        """Lets the rows of one HTTP request in; the block is the time that they run.

        A block left with an exception costs only what was `spent`.

        Raises:
            UsageError: at once: the request asks for more than any request may.
            HttpRefusal: on entering: a limit of the caller's is reached (429), or the request
                exceeds it even alone (400).
        """


class OpenAccess:
    """Serves everyone as the same anonymous caller."""

    def __init__(self, settings: AccessSettings | None = None) -> None:
        """Of the settings it reads how large a request may be."""
        self._settings = settings or AccessSettings()

    async def caller(self, connection: HTTPConnection) -> Caller:
        connection.state.key_id = _ANYONE.key_id
        return _ANYONE

    def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AbstractAsyncContextManager[Admission]:
        check_rows(requests, self._settings.max_rows, self._settings.max_prompt_tokens)
        return nullcontext(FREE)


class _Free:
    """The admission of whoever has no limits."""

    headers: Mapping[str, str] = {}

    def spent(self, usage: Usage) -> None:
        return None


def tokens_asked(requests: Sequence[GenerationRequest]) -> int:
    """The most tokens that requests can cost: their prompts, and all they may generate."""
    return sum(len(r.prompt_ids) + (r.decoding.max_tokens or 0) for r in requests)


_ANYONE = Caller()
FREE = _Free()
"""Admission without limits."""

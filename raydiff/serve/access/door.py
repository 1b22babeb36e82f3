"""`Access`: what the gateway asks before it serves anyone, and the answer of an open door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from starlette.requests import HTTPConnection

from raydiff.request import GenerationRequest, Usage
from raydiff.serve.access.caller import Caller


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
        """Who sends this request.

        Raises:
            HttpRefusal: it carries no valid key (401).
        """

    def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AbstractAsyncContextManager[Admission]:
        """Lets the rows of one HTTP request in; the block is the time that they run.

        A block left with an exception costs only what was `spent`.

        Raises:
            HttpRefusal: on entering: a limit of the caller's is reached (429), or the request
                exceeds it even alone (400).
        """


class OpenAccess:
    """Serves everyone as the same anonymous caller."""

    async def caller(self, connection: HTTPConnection) -> Caller:
        return _ANYONE

    def admit(
        self, caller: Caller, model: str, requests: Sequence[GenerationRequest]
    ) -> AbstractAsyncContextManager[Admission]:
        return nullcontext(_FREE)


class _Free:
    """The admission of whoever has no limits."""

    headers: Mapping[str, str] = {}

    def spent(self, usage: Usage) -> None:
        return None


def tokens_asked(requests: Sequence[GenerationRequest]) -> int:
    """The most tokens that requests can cost: their prompts, and all they may generate."""
    return sum(len(r.prompt_ids) + (r.decoding.max_tokens or 0) for r in requests)


_ANYONE = Caller()
_FREE = _Free()

"""The authority as a Serve deployment, and the way to it."""

from __future__ import annotations

import asyncio

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from raydiff.serve.access.rates.authority import Authority
from raydiff.serve.access.rates.messages import Reply, Report

TIMEOUT_S = 1.0


class RateLimiter:
    """The Serve deployment's class; there is one replica. Serve replaces it when it dies, and the
    gateways' reports tell the new one what the old one knew."""

    def __init__(self) -> None:
        self._authority = Authority()

    async def exchange(self, report: Report) -> Reply:
        """As `Authority.exchange`."""
        return self._authority.exchange(report)


class ServeLink:
    """Calls the authority through its handle."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def exchange(self, report: Report) -> Reply:
        response = self._handle.exchange.remote(report)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply: Reply = await response
        except TimeoutError:
            response.cancel()
            raise ConnectionError(f"no answer in {TIMEOUT_S:g} s") from None
        except (RayError, RayServeException) as error:
            raise ConnectionError(type(error).__name__) from None
        return reply

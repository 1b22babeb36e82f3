"""Who calls: a key's id and what goes with it. Never the key itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from raydiff.request import Lane

ANONYMOUS = "anonymous"
"""The id of whoever calls without a key; no key may have it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a key may ask for; `None` is without limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Tokens of prompts and of answers together."""
    concurrent_requests: int | None = None
    """HTTP requests in flight at a time, over all gateways."""

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """On whose behalf a request is served."""

    key_id: str = ANONYMOUS
    """Names the key in logs, and its files, batches and turns in queues."""
    models: tuple[str, ...] = ("*",)
    """Names of models it may use, or shell patterns of names."""
    lane: Lane | None = None
    """The lane it is bound to; `None` leaves the choice to each request."""
    limits: Limits = field(default_factory=Limits)

    def may_use(self, model: str) -> bool:
        """Whether it may use the model of this name.

        To whom may not, the model does not exist: it is left out of lists and answered with the
        404 of an unknown name (as OpenAI does), so that a key tells nothing of what else runs.
        """
        return any(fnmatchcase(model, pattern) for pattern in self.models)

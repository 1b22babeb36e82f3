"""How a request is told that its key has reached a limit, and how far it is from one."""

from __future__ import annotations

from dataclasses import dataclass

from raydiff.openai.problems import HttpRefusal, Problem
from raydiff.serve.access.caller import Limits
from raydiff.serve.access.rates.messages import KeyReply, Resource
from raydiff.serve.access.rates.meter import KeyMeter

SEAT_WAIT_S = 1.0
"""When to try again while too many requests of a key are in flight: nobody knows how long."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A refusal that stands for a moment."""

    amounts: dict[Resource, int]
    limit: Resource | None
    """Which was reached; `None` is that of requests in flight."""
    until_s: float
    again_at_s: float
    """When it is worth trying again."""

    @classmethod
    def of(
        cls,
        key: KeyMeter,
        amounts: dict[Resource, int],
        reply: KeyReply | None,
        now_s: float,
        stands_s: float,
    ) -> Refused:
        """The refusal of a request; `reply` is what the authority said, if it did."""
        waits: dict[Resource, float] = {}
        for resource, amount in amounts.items():
            meter = key.meters[resource]
            if reply is None or resource not in reply.grants:
                waits[resource] = meter.wait_alone_s(amount, now_s)
            elif reply.grants[resource].wait_s > 0:
                waits[resource] = reply.grants[resource].wait_s
        limit, wait_s = None, SEAT_WAIT_S
        if waits:
            limit, wait_s = max(waits.items(), key=lambda item: item[1])
        until_s = now_s + min(stands_s, wait_s)
        return cls(amounts=amounts, limit=limit, until_s=until_s, again_at_s=now_s + wait_s)

    def stands(self, amounts: dict[Resource, int], now_s: float) -> bool:
        """Whether it holds for another request that needs these amounts."""
        return now_s < self.until_s and all(
            amounts.get(resource, 0) >= amount for resource, amount in self.amounts.items()
        )


def require_possible(limits: Limits, tokens: int) -> None:
    """Refuse what would never pass.

    Raises:
        HttpRefusal: the request alone exceeds the tokens of a minute (400).
    """
    limit = limits.tokens_per_minute
    if limit is not None and tokens > limit:
        message = (
            f"The request may cost {tokens} tokens (prompts, and max_tokens for each answer), and "
            f"the API key's limit is {limit} per minute. Ask for less: it would never be served."
        )
        raise HttpRefusal(Problem(status=400, message=message, code="above_rate_limit"))


def refusal(key: KeyMeter, refused: Refused, now_s: float) -> HttpRefusal:
    """The 429 that says which limit was reached and when to come back."""
    again_s = max(0.0, refused.again_at_s - now_s)
    if refused.limit is None:
        reached = f"{key.seat_limit} requests in flight"
    else:
        reached = f"{key.meters[refused.limit].limit} {refused.limit} per minute"
    message = f"The API key's limit of {reached} is reached. Try again in {again_s:.1f} s."
    return HttpRefusal(
        Problem(
            status=429,
            message=message,
            type=refused.limit or "requests",
            code="rate_limit_exceeded",
            retry_after_s=again_s,
            more_headers=headers(key, now_s),
        )
    )


def headers(key: KeyMeter, now_s: float) -> dict[str, str]:
    """OpenAI's `x-ratelimit-*` headers, as far as this gateway knows."""
    found: dict[str, str] = {}
    for resource, meter in key.meters.items():
        found[f"x-ratelimit-limit-{resource}"] = str(meter.limit)
        found[f"x-ratelimit-remaining-{resource}"] = str(meter.remaining(now_s))
        found[f"x-ratelimit-reset-{resource}"] = duration(meter.reset_s(now_s))
    return found


def duration(seconds: float) -> str:
    """As OpenAI writes it: 1h2m, 6m0s, 1.5s, 20ms."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes or hours else ""
    return f"{text}{rest:g}s" if rest == int(rest) else f"{text}{rest:.3g}s"

"""Pages of lists: OpenAI's `limit`, `after` and `order`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from raydiff.errors import UsageError, invalid


@dataclass(frozen=True, kw_only=True)
class PageQuery:
    """Which page is asked for."""

    limit: int
    after: str | None
    newest_first: bool


def page_query(request: Request, *, default: int, most: int, known: Sequence[str]) -> PageQuery:
    """The page that a request's query names; `known` are its other parameters.

    Raises:
        UsageError: a parameter is unknown or wrong.
    """
    query = request.query_params
    names = ("limit", "after", *known)
    unknown = next((name for name in query if name not in names), None)
    if unknown is not None:
        message = f"{unknown}: unknown parameter. Known are {', '.join(names)}."
        raise UsageError(message, unknown)
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise UsageError(invalid("order", expected="asc or desc", got=order), "order")
    limit = query.get("limit", str(default))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= most):
        raise UsageError(
            invalid("limit", expected=f"an integer in [1, {most}]", got=limit), "limit"
        )
    return PageQuery(limit=int(limit), after=query.get("after"), newest_first=order == "desc")


def list_body(data: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """OpenAI's list object."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }

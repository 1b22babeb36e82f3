"""The API key that a request carries, and the answer when it carries none that works."""

from __future__ import annotations

from collections.abc import Mapping

from raydiff.openai.problems import HttpRefusal, Problem

MAX_KEY_CHARACTERS = 512


def bearer_key(headers: Mapping[str, str]) -> str:
    """The key in `Authorization: Bearer KEY`.

    Raises:
        HttpRefusal: there is none (401).
    """
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise _refusal(
            "No API key was given. Expected the header 'Authorization: Bearer YOUR_KEY'."
        )
    if len(key) > MAX_KEY_CHARACTERS:
        raise wrong_key()
    return key


def wrong_key() -> HttpRefusal:
    """What whoever gives another key gets. It repeats no part of the key."""
    return _refusal("The API key is wrong, or no longer works.")


def _refusal(message: str) -> HttpRefusal:
    return HttpRefusal(
        Problem(
            status=401,
            message=message,
            code="invalid_api_key",
            more_headers={"WWW-Authenticate": "Bearer"},
        )
    )

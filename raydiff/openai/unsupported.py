"""What OpenAI's API and load generators know and raydiff does not: one table that is both the
check of bodies and the documentation of these fields.

Each field passes only with a value that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raydiff.errors import UsageError

Neutral = Mapping[str, tuple[Any, ...]]
"""Fields, each with the values that ask for nothing."""

IN_BODY: Neutral = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "metadata": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Of bodies; a body that has such a field of its own honours it."""

IN_MESSAGE: Neutral = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "refusal": (),
    "tool_calls": ([],),
}
"""Of messages."""


def without_neutral(
    body: Mapping[str, Any],
    neutral: Neutral,
    prefix: str,
    known: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The body without the fields that ask for nothing; `known` are those it honours.

    Raises:
        UsageError: a field asks for something; `param` is its path, which begins with `prefix`.
    """
    kept = {}
    for name, value in body.items():
        if name not in neutral or name in (known or ()):
            kept[name] = value
        elif not any(_same(value, allowed) for allowed in neutral[name]):
            remedy = f"Leave it out{_allowed(neutral[name])}."
            message = f"{prefix}{name}: not supported with this value. {remedy}"
            raise UsageError(message, f"{prefix}{name}")
    return kept


def _same(value: Any, allowed: Any) -> bool:
    is_bool = isinstance(value, bool), isinstance(allowed, bool)
    return is_bool[0] == is_bool[1] and bool(value == allowed)


def _allowed(values: Sequence[Any]) -> str:
    return f" or give {' or '.join(repr(v) for v in values)}" if values else ""

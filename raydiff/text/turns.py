"""Chats that exceed a model's context: the oldest turns go first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raydiff.errors import PromptTooLong, invalid
from raydiff.text.template import Messages
from raydiff.text.tokenizer import Tokenizer

_SYSTEM = ("system", "developer")


@dataclass(frozen=True, kw_only=True)
class FittedChat:
    """A chat that fits."""

    prompt_ids: tuple[int, ...]
    dropped: int
    """Messages left out."""


def fit_chat(tokenizer: Tokenizer, messages: Messages, max_tokens: int) -> FittedChat:
    """The prompt of a chat in at most `max_tokens` tokens, without as few of its oldest turns as
    that takes.

    A turn is a message of the user, or several in a row, with all that answers it: roles alternate
    in what is left as they did before. System messages stay, wherever they stand, and so does the
    last turn, which is the last message of the user with what comes after it. The same holds of a
    model without a chat template, whose prompt is the contents joined by blank lines.

    The chat is tokenised once if it fits, else about as often as its turns can be halved.

    Raises:
        PromptTooLong: the system messages and the last turn alone exceed `max_tokens`.
        UsageError: there are no messages, or the template refuses them.
    """
    whole = tokenizer.chat_prompt_ids(messages)
    if len(whole) <= max_tokens:
        return FittedChat(prompt_ids=whole, dropped=0)
    starts = _turn_starts(messages)
    low, high, fitting = 1, len(starts), None
    while low < high:
        middle = (low + high) // 2
        attempt = _without(tokenizer, messages, starts[middle])
        if len(attempt.prompt_ids) <= max_tokens:
            high, fitting = middle, attempt
        else:
            low = middle + 1
    if fitting is not None:
        return fitting
    raise _too_long(tokenizer, messages, starts[-1], max_tokens)


def _turn_starts(messages: Messages) -> list[int]:
    """Where turns begin; what stands before the first message of a user belongs to the first."""
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    starts = [i for i in users if i == 0 or not _continues(messages, i)]
    if not starts or _talk(messages[: starts[0]]):
        return [0, *starts] if 0 not in starts else starts
    return starts


def _continues(messages: Messages, at: int) -> bool:
    """Whether a user's message follows another of theirs, system messages aside."""
    before = _talk(messages[:at])
    return bool(before) and before[-1]["role"] == "user"


def _talk(messages: Messages) -> Sequence[Mapping[str, str]]:
    return [message for message in messages if message["role"] not in _SYSTEM]


def _without(tokenizer: Tokenizer, messages: Messages, begin: int) -> FittedChat:
    """The chat from message `begin` on, with the system messages before it."""
    kept = [m for m in messages[:begin] if m["role"] in _SYSTEM]
    dropped = begin - len(kept)
    ids = tokenizer.chat_prompt_ids([*kept, *messages[begin:]])
    return FittedChat(prompt_ids=ids, dropped=dropped)


def _too_long(
    tokenizer: Tokenizer, messages: Messages, last: int, max_tokens: int
) -> PromptTooLong:
    least = len(_without(tokenizer, messages, last).prompt_ids)
    expected = f"a system prompt and a last turn of at most {max_tokens} tokens"
    remedy = "Both are never left out: shorten them, or lower max_tokens."
    return PromptTooLong(
        invalid("messages", expected=expected, got=least, remedy=remedy), "messages"
    )

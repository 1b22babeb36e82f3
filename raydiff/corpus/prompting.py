"""The prompts of a run, made alike by whoever checks, estimates or sends them."""

from __future__ import annotations

from raydiff.config import CorpusSettings
from raydiff.request import Decoding
from raydiff.text import DocumentPrompts, PromptStyle, Tokenizer, longest_text


def corpus_prompts(
    settings: CorpusSettings, style: PromptStyle, decoding: Decoding, tokenizer: Tokenizer
) -> DocumentPrompts:
    """Prompts that leave room for the answer. `decoding` is resolved.

    Raises:
        UsageError: they leave no room for a text, or the chat template refuses the style.
    """
    assert decoding.max_tokens is not None
    longest = longest_text(settings.task, decoding)
    return DocumentPrompts.styled(tokenizer, style, decoding.max_tokens, longest)

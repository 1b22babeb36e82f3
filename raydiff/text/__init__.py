"""Text in and out of tokens: tokenizer, chat template, chunking. Loads no torch.

User text never becomes a special token: a literal mask token in a document is plain text.
"""

from __future__ import annotations

from raydiff.text.chunking import split_into_chunks
from raydiff.text.documents import DocumentPrompts, Fitted, LengthPolicy
from raydiff.text.labels import Labels, decoding_for_labels, label_tokens
from raydiff.text.styles import (
    PromptStyle,
    decoding_for,
    longest_text,
    prompt_style,
    read_examples,
)
from raydiff.text.tokenizer import Tokenizer
from raydiff.text.turns import FittedChat, fit_chat

__all__ = [
    "DocumentPrompts",
    "Fitted",
    "FittedChat",
    "Labels",
    "LengthPolicy",
    "PromptStyle",
    "Tokenizer",
    "decoding_for",
    "decoding_for_labels",
    "fit_chat",
    "label_tokens",
    "longest_text",
    "prompt_style",
    "read_examples",
    "split_into_chunks",
]

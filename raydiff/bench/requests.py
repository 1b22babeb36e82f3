"""How documents become requests, as a corpus job with the same settings would make them."""

from __future__ import annotations

from raydiff.config import CorpusSettings
from raydiff.corpus.prompting import corpus_prompts
from raydiff.decoding import Decoding
from raydiff.text import DocumentPrompts, Tokenizer, prompt_style


def document_prompts(
    settings: CorpusSettings, tokenizer: Tokenizer, decoding: Decoding
) -> DocumentPrompts:
    """Makes the prompts of a run. `decoding` is resolved.

    Raises:
        UsageError: the model cannot be asked that way, or there is no room for a text.
    """
    style = prompt_style(settings.model, settings.task, settings.instruction)
    return corpus_prompts(settings, style, decoding, tokenizer)

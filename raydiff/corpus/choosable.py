"""Whether a run's model can choose among its labels, told before anything is planned."""

from __future__ import annotations

from raydiff.config import CorpusSettings
from raydiff.engine.validation import check_choices
from raydiff.request import Decoding
from raydiff.text import Tokenizer, label_tokens


def require_choosable(settings: CorpusSettings, decoding: Decoding) -> None:
    """Check the labels of a run against its model. `decoding` is resolved.

    Raises:
        DecodingError: a decoding setting contradicts the labels.
        UsageError: the model cannot choose, or not among these labels.
    """
    tokenizer = Tokenizer.load(settings.model)
    labels = label_tokens(tokenizer, settings.task.labels)
    check_choices(tuple(labels), decoding, tokenizer.spec)

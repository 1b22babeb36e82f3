"""Labels as the token sequences that a model chooses from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raydiff.errors import UsageError, invalid
from raydiff.text.tokenizer import Tokenizer

Labels = Mapping[tuple[int, ...], str]
"""Each label by its tokens, in the order given."""


def label_tokens(tokenizer: Tokenizer, labels: Sequence[str]) -> Labels:
    """The labels by their tokens.

    Raises:
        UsageError: there are fewer than two, one is empty or has white space around it, or the
            tokenizer cannot tell two of them apart.
    """
    if len(labels) < 2:
        raise _refused("at least two", list(labels))
    found: dict[tuple[int, ...], str] = {}
    for label, ids in zip(labels, tokenizer.encode_batch(list(labels)), strict=True):
        if not label or label != label.strip():
            raise _refused("no empty label and no white space around one", label)
        if tuple(ids) in found:
            expected = "labels that differ in the model's tokens"
            raise _refused(expected, [found[tuple(ids)], label])
        found[tuple(ids)] = label
    return found


def _refused(expected: str, got: object) -> UsageError:
    return UsageError(invalid("labels", expected=expected, got=got), "labels")

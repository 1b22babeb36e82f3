"""Labels as the token sequences that a model chooses from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raydiff.decoding import Decoding
from raydiff.errors import UsageError, invalid
from raydiff.spec import ModelSpec
from raydiff.text.tokenizer import Tokenizer

Labels = Mapping[tuple[int, ...], str]
"""Each label by its tokens, in the order given."""


def label_tokens(tokenizer: Tokenizer, labels: Sequence[str]) -> Labels:
    """The labels by their tokens.

    Raises:
        UsageError: there are fewer than two, one is empty, has white space around it or takes
            tokens that the model never writes, or the tokenizer cannot tell two of them apart.
    """
    spec = tokenizer.spec
    never = {spec.mask_id, *spec.end_ids, *spec.forbidden_ids}
    if len(labels) < 2:
        raise _refused("at least two", list(labels))
    found: dict[tuple[int, ...], str] = {}
    for label, ids in zip(labels, tokenizer.encode_batch(list(labels)), strict=True):
        if not label or label != label.strip():
            raise _refused("no empty label and no white space around one", label)
        if not never.isdisjoint(ids):
            raise _refused(f"labels in tokens that {spec.name!r} may write", label)
        if tuple(ids) in found:
            expected = "labels that differ in the model's tokens"
            raise _refused(expected, [found[tuple(ids)], label])
        found[tuple(ids)] = label
    return found


def decoding_for_labels(spec: ModelSpec, labels: Labels, decoding: Decoding) -> Decoding:
    """The decoding settings, with room for the longest label and its end, and with temperature 0,
    where the caller says nothing."""
    most = min(max(map(len, labels)) + 1, spec.max_new_tokens)
    return replace(
        decoding,
        max_tokens=most if decoding.max_tokens is None else decoding.max_tokens,
        temperature=0.0 if decoding.temperature is None else decoding.temperature,
    )


def _refused(expected: str, got: object) -> UsageError:
    return UsageError(invalid("labels", expected=expected, got=got), "labels")

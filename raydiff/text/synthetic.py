"""A tokenizer for models of random weights: bytes in, and every token out as something to see."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from raydiff.spec import ModelSpec


def synthetic_backend(spec: ModelSpec) -> tokenizers.Tokenizer:
    """Bytes take the first 256 ids that are not special; any other id reads as itself, "[4711]".

    Special tokens have names of their own: "<|mask|>", "<|end|>", "<|pad|>".
    """
    specials = _specials(spec)
    ordinary = iter([i for i in range(spec.vocab_size) if i not in specials])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = dict(zip(alphabet, ordinary, strict=False))
    vocab.update({f"[{number}]": number for number in ordinary})
    vocab.update({name: number for number, name in specials.items()})
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    added = [AddedToken(name, special=True, normalized=False) for name in specials.values()]
    backend.add_special_tokens(added)
    return backend


def _specials(spec: ModelSpec) -> dict[int, str]:
    around = (*spec.prompt_prefix_ids, *spec.prompt_suffix_ids)
    names = {number: f"<|special-{number}|>" for number in around}
    names[spec.pad_id] = "<|pad|>"
    for place, number in enumerate(spec.end_ids):
        names[number] = f"<|end-{place}|>" if place else "<|end|>"
    names[spec.mask_id] = "<|mask|>"
    return dict(sorted(names.items()))

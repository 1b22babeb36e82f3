"""The tokenizer of a checkpoint, from whichever files it brings; no code of the checkpoint runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from raydiff.errors import ModelError, invalid

_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokenizer cuts text before it merges bytes; a fact of its vocabulary."""

_QWEN_CLASSES = ("qwen", "dream")
_GPT2_CLASSES = ("gpt2", "roberta", "bart", "longformer")
_BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_REMEDY = (
    "Save it as tokenizer.json, for example with "
    "transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)."
)


def load_backend(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a checkpoint directory.

    From `tokenizer.json`, else `vocab.json` with `merges.txt` (byte pairs as Qwen2's or GPT-2's,
    by `tokenizer_class`), else `vocab.txt` (BERT's word pieces).

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    try:
        return _load(path)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare Exception on malformed files
        raise ModelError(f"{path}: expected a readable tokenizer: {error}.") from error


def _load(path: Path) -> tokenizers.Tokenizer:
    if (file := path / "tokenizer.json").is_file():
        backend = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        if backend.decoder is None and isinstance(backend.model, models.WordPiece):
            backend.decoder = decoders.WordPiece()
        return backend
    config = _object(path / "tokenizer_config.json")
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return _byte_pairs(path, config)
    if (path / "vocab.txt").is_file():
        return _word_pieces(path, config)
    found = ", ".join(sorted(p.name for p in path.glob("*token*"))) or "none of them"
    expected = "tokenizer.json, vocab.json with merges.txt, or vocab.txt"
    raise ModelError(invalid(f"{path}", expected=expected, got=found, remedy=_REMEDY))


def _byte_pairs(path: Path, config: dict[str, Any]) -> tokenizers.Tokenizer:
    kind = str(config.get("tokenizer_class", ""))
    qwen = any(name in kind.lower() for name in _QWEN_CLASSES)
    if not qwen and not any(name in kind.lower() for name in _GPT2_CLASSES):
        expected = "a tokenizer_class of Qwen2's or GPT-2's kind beside vocab.json and merges.txt"
        raise ModelError(invalid(f"{path}", expected=expected, got=kind, remedy=_REMEDY))
    vocab, merges = models.BPE.read_file(str(path / "vocab.json"), str(path / "merges.txt"))
    added = _added_tokens(path, config)
    # ids of added tokens need not follow the vocabulary without gaps: known ones keep theirs
    vocab = {**vocab, **{token.content: number for number, token in added.items()}}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.decoder = decoders.ByteLevel()
    if qwen:
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_QWEN_WORDS), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        space = bool(config.get("add_prefix_space", False))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    backend.add_tokens([added[number] for number in sorted(added)])
    return backend


def _word_pieces(path: Path, config: dict[str, Any]) -> tokenizers.Tokenizer:
    vocab = models.WordPiece.read_file(str(path / "vocab.txt"))
    unknown = "[UNK]"
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([token for token in _BERT_SPECIALS if token in vocab])
    added = _added_tokens(path, config)
    backend.add_tokens([added[number] for number in sorted(added)])
    return backend


def _added_tokens(path: Path, config: dict[str, Any]) -> dict[int, AddedToken]:
    """By id; those of `added_tokens.json` are special, as only old checkpoints rely on it."""
    tokens = {
        int(number): AddedToken(text, special=True, normalized=False)
        for text, number in _object(path / "added_tokens.json").items()
    }
    for number, entry in (config.get("added_tokens_decoder") or {}).items():
        flags = {
            name: bool(entry.get(name, False))
            for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
        }
        tokens[int(number)] = AddedToken(entry["content"], **flags)
    return tokens


def _object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    value = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ModelError(invalid(str(file), expected="a JSON object", got=type(value).__name__))
    return value


def hardened(backend: tokenizers.Tokenizer, control_ids: frozenset[int]) -> tokenizers.Tokenizer:
    """The tokenizer with every control token special, and special tokens matched as written.

    A mask or end token that its file does not call special would otherwise be read from a user's
    text; one matched after normalisation would be read in other spellings too.
    """
    added = backend.get_added_tokens_decoder()
    wrong = {
        number
        for number, token in added.items()
        if (number in control_ids and not token.special) or (token.special and token.normalized)
    }
    if wrong:
        state = json.loads(backend.to_str())
        for entry in state["added_tokens"]:
            if entry["id"] in wrong:
                entry.update(special=True, normalized=False)
        backend = tokenizers.Tokenizer.from_str(json.dumps(state))
    backend.no_truncation()
    backend.no_padding()
    return backend


def recognising_specials(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A copy that reads special tokens from text. The flag is no argument of `encode`, and to
    switch it back and forth on one tokenizer would race between threads."""
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.encode_special_tokens = False
    return copy

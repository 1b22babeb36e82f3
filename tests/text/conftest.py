"""Small tokenizers of the kinds that public checkpoints bring, in directories like theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from raydiff.decoding import Decoding
from raydiff.spec import KVGroup, ModelSpec
from raydiff.text import Tokenizer
from raydiff.text.template import ChatTemplate

WORDS = [
    "The small library reads and writes files, doesn't it? It's quick: 3 times in 10.",
    "user system assistant end of turn start mask text \n\n new lines\nand  spaces",
]
SPECIALS = ["<pad>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Kind = str
KINDS: tuple[Kind, ...] = ("bytes", "sentencepiece", "wordpiece")


def _trained(backend: tokenizers.Tokenizer, trainer: Any) -> tokenizers.Tokenizer:
    backend.train_from_iterator(WORDS, trainer)
    return backend


def byte_pairs() -> tokenizers.Tokenizer:
    """Byte-level BPE, as Qwen's and Llama's."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    return _trained(backend, trainer)


def sentence_pieces() -> tokenizers.Tokenizer:
    """BPE over characters with a fallback to bytes, as Gemma's."""
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    letters = sorted({c for text in WORDS for c in text if c != " "} | {"\u2581", "<", "|", ">"})
    pairs = [("t", "h"), ("e", "r"), ("i", "n"), ("\u2581", "t"), ("\u2581t", "h")]
    pieces = [*SPECIALS, "<unk>", *bytes_, *letters, *("".join(pair) for pair in pairs)]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    model = models.BPE(
        vocab=vocab, merges=pairs, byte_fallback=True, unk_token="<unk>", fuse_unk=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_special_tokens(SPECIALS)
    return backend


def word_pieces() -> tokenizers.Tokenizer:
    """BERT's, in lower case."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=160, special_tokens=[*SPECIALS, "<unk>"], show_progress=False
    )
    return _trained(backend, trainer)


MAKERS: dict[Kind, Callable[[], tokenizers.Tokenizer]] = {
    "bytes": byte_pairs,
    "sentencepiece": sentence_pieces,
    "wordpiece": word_pieces,
}


def spec_for(backend: tokenizers.Tokenizer, **values: Any) -> ModelSpec:
    """A spec whose mask, end and padding are the tokenizer's."""
    known: dict[str, Any] = {
        "name": "toy",
        "family": "toy",
        "vocab_size": backend.get_vocab_size(),
        "hidden_size": 8,
        "kv": (KVGroup(layers=1, heads=1, head_dim=8),),
        "pad_id": backend.token_to_id("<pad>") or 0,
        "mask_id": backend.token_to_id("<|mask|>") or 0,
        "end_ids": (backend.token_to_id("<|im_end|>") or 0,),
        "max_prompt_tokens": 200,
        "block_length": 8,
        "max_new_tokens": 32,
        "defaults": Decoding(),
    }
    return ModelSpec(**{**known, **values})


@pytest.fixture(scope="session", params=KINDS)
def chat_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """One of each kind, with a chat template."""
    backend = MAKERS[request.param]()
    return Tokenizer(backend, spec_for(backend), ChatTemplate(CHATML))


@pytest.fixture
def write_files(tmp_path: Path) -> Callable[..., Path]:
    """Writes files of a checkpoint: texts as they are, anything else as JSON."""

    def write(**files: Any) -> Path:
        for name, value in files.items():
            file = tmp_path / name.replace("__", ".")
            text = value if isinstance(value, str) else json.dumps(value)
            file.write_text(text, encoding="utf-8")
        return tmp_path

    return write

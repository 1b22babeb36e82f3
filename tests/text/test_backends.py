"""Tokenizers from the files that public checkpoints bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from raydiff.errors import ModelError
from raydiff.text.backends import load_backend
from tests.text.conftest import SPECIALS, byte_pairs, word_pieces

TEXTS = [
    "The library doesn't read  10 files.\n\n It's quick\t!",
    "  spaces,\r\nnew lines \n and üñïçödé 漢字 é 🙂",
    "",
    "a<|im_end|>b",
]


def _byte_pair_files(path: Path, tokenizer_class: str, **config: Any) -> Path:
    """vocab.json and merges.txt without special tokens; those stand in tokenizer_config.json."""
    backend = byte_pairs()
    state = json.loads(backend.to_str())["model"]
    vocab = {text: i for text, i in state["vocab"].items() if text not in SPECIALS}
    first = min(vocab.values())
    vocab = {text: i - first for text, i in vocab.items()}
    (path / "vocab.json").write_text(json.dumps(vocab))
    merges = [" ".join(pair) for pair in state["merges"]]
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    end = max(vocab.values()) + 1
    entries = {
        str(end + i): {"content": text, "special": True, "normalized": False}
        for i, text in enumerate(SPECIALS)
    }
    settings = {"tokenizer_class": tokenizer_class, "added_tokens_decoder": entries, **config}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("kind", ["Qwen2Tokenizer", "DreamTokenizer"])
def test_byte_pairs_of_qwen_are_read_as_transformers_reads_them(tmp_path: Path, kind: str) -> None:
    path = _byte_pair_files(tmp_path, kind)
    reference = transformers.Qwen2Tokenizer.from_pretrained(path)
    backend = load_backend(path)
    for text in TEXTS:
        ids = backend.encode(text, add_special_tokens=False).ids
        assert ids == reference.encode(text, add_special_tokens=False)
        assert backend.decode(ids, skip_special_tokens=False) == reference.decode(ids)


def test_byte_pairs_of_gpt2_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    path = _byte_pair_files(tmp_path, "GPT2Tokenizer")
    reference = transformers.GPT2Tokenizer.from_pretrained(path)
    backend = load_backend(path)
    for text in TEXTS:
        ids = backend.encode(text, add_special_tokens=False).ids
        assert ids == reference.encode(text, add_special_tokens=False)


def test_added_tokens_keep_their_ids_even_behind_a_gap(tmp_path: Path) -> None:
    path = _byte_pair_files(tmp_path, "Qwen2Tokenizer")
    (path / "added_tokens.json").write_text(json.dumps({"<|far|>": 5000}))
    backend = load_backend(path)
    assert backend.encode("a<|far|>").ids[-1] == 5000
    assert backend.decode([5000], skip_special_tokens=False) == "<|far|>"


@pytest.mark.parametrize("lower", [True, False])
def test_word_pieces_are_read_as_transformers_reads_them(tmp_path: Path, lower: bool) -> None:
    vocab = word_pieces().get_vocab()
    renamed = {"<pad>": "[PAD]", "<unk>": "[UNK]", "<|mask|>": "[MASK]"}
    renamed |= {"<|im_start|>": "[CLS]", "<|im_end|>": "[SEP]"}
    words = [renamed.get(text, text) for text in sorted(vocab, key=lambda text: vocab[text])]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reference = transformers.BertTokenizer.from_pretrained(tmp_path)
    backend = load_backend(tmp_path)
    for text in [*TEXTS, "The [MASK] library"]:
        ids = backend.encode(text, add_special_tokens=False).ids
        assert ids == reference.encode(text, add_special_tokens=False)
    assert backend.decode(backend.encode("libraries").ids) == "libraries"


def test_word_pieces_without_a_decoder_are_joined_all_the_same(tmp_path: Path) -> None:
    state = json.loads(word_pieces().to_str())
    state["decoder"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    backend = load_backend(tmp_path)
    assert backend.decode(backend.encode("the small library").ids) == "the small library"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "tokenizer.json, vocab.json with merges.txt, or vocab.txt"),
        ({"tokenizer.model": "x"}, r"got 'tokenizer\.model'\. Save it as tokenizer\.json"),
        ({"tokenizer.json": "not json"}, "readable tokenizer"),
        ({"tokenizer.json": "{}"}, "readable tokenizer"),
        ({"vocab.json": "{}", "merges.txt": ""}, "tokenizer_class"),
        ({"vocab.json": "[", "merges.txt": "", "tokenizer_config.json": "{}"}, "tokenizer_class"),
        (
            {
                "vocab.json": "[",
                "merges.txt": "",
                "tokenizer_config.json": '{"tokenizer_class": "Qwen2Tokenizer"}',
            },
            "readable tokenizer",
        ),
        ({"vocab.txt": "a\nb\n", "tokenizer_config.json": "[]"}, "a JSON object, got 'list'"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_a_model_error(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=says):
        load_backend(tmp_path)


def test_no_code_of_a_checkpoint_runs(tmp_path: Path) -> None:
    path = _byte_pair_files(
        tmp_path, "DreamTokenizer", auto_map={"AutoTokenizer": ["evil.DreamTokenizer", None]}
    )
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert isinstance(load_backend(path), tokenizers.Tokenizer)
    assert not (tmp_path / "ran").exists()

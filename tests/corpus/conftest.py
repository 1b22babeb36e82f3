"""A byte-level toy model directory and small Parquet corpora."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

MAX_PROMPT_TOKENS = 66
"""Of the toy model: 64 bytes of text between a prefix and a suffix token."""


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint directory whose tokens are bytes. It has no weights: nobody loads them."""
    return make_toy_model(tmp_path_factory.mktemp("models") / "toy", MAX_PROMPT_TOKENS)


def make_toy_model(path: Path, max_prompt_tokens: int) -> str:
    """Write the toy model's files; returns the path."""
    path.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<pad>", "<mask>", "<end>", "<doc>"]
    vocab = {token: i for i, token in enumerate([*specials, *alphabet])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    backend.save(str(path / "tokenizer.json"))
    section = {
        "mask_id": 1,
        "end_ids": [2],
        "prompt_prefix_ids": [3],
        "prompt_suffix_ids": [2],
        "max_prompt_tokens": max_prompt_tokens,
        "block_length": 8,
        "max_new_tokens": 32,
        "target_position": 128,
        "defaults": {"max_tokens": 16, "steps": 4, "policy": "quota", "temperature": 0.0},
    }
    config = {
        "model_type": "bert",
        "vocab_size": len(vocab),
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "pad_token_id": 0,
        "raydiff": section,
    }
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


WriteCorpus = Callable[..., Path]


@pytest.fixture
def write_corpus() -> WriteCorpus:
    """Writes a Parquet file of texts, with ids unless told otherwise."""

    def write(
        path: Path,
        texts: Sequence[Any],
        *,
        ids: Sequence[Any] | None = None,
        id_name: str | None = "doc_id",
        row_group_size: int = 1000,
        **extra: Any,
    ) -> Path:
        columns: dict[str, Any] = {}
        if id_name is not None:
            columns[id_name] = ids or [f"{path.stem}-{i}" for i in range(len(texts))]
        columns["text"] = texts
        columns.update(extra)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return path

    return write


def read_outputs(output: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of all parts, and of the errors files that parts name, as a reader would find them."""
    good = [row for p in sorted(output.glob("part-*.parquet")) for row in _rows(p)]
    bad = [row for p in sorted(output.glob("errors/*.parquet")) for row in _rows(p)]
    return good, bad


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows

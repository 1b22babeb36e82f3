"""The bundled summariser: small, stock, lossless, better than extraction on unseen documents."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertForMaskedLM

from raydiff.engine import Engine
from raydiff.families import load_spec, model_path
from raydiff.request import Decoding
from raydiff.train.corpus import evenly, read_split
from raydiff.train.evaluate import baselines, rouge, summarise

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample.parquet"
FOLDER = model_path("summarizer")
MAX_WEIGHT_BYTES = 32_000_000


def test_weights_are_small_and_safe() -> None:
    assert (FOLDER / "model.safetensors").stat().st_size <= MAX_WEIGHT_BYTES
    assert {path.suffix for path in FOLDER.iterdir()} <= {".json", ".md", ".png", ".safetensors"}


def test_stock_transformers_loads_and_runs_it() -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(FOLDER))
    model = BertForMaskedLM.from_pretrained(str(FOLDER), dtype=torch.float32)
    with torch.no_grad():
        logits_BLV = model(**tokenizer("A tool.", return_tensors="pt")).logits
    assert logits_BLV.shape[-1] == len(tokenizer)


def test_spec_and_tokenizer_agree_on_special_tokens() -> None:
    spec, tokenizer = load_spec("summarizer"), AutoTokenizer.from_pretrained(str(FOLDER))
    assert spec.mask_id == tokenizer.mask_token_id
    assert spec.end_ids == (tokenizer.eos_token_id,)
    assert spec.pad_id == tokenizer.pad_token_id
    assert spec.prompt_prefix_ids == (tokenizer.cls_token_id,)
    assert spec.vocab_size == len(tokenizer)


@pytest.mark.parametrize("text", ["", " x\n\n", "Größe 日本 🙂", "\x00\x7f", "<|mask|> <|end|>"])
def test_its_tokenizer_is_lossless(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert not {0, 1, 2, 3} & set(ids)


def test_it_beats_extraction_on_unseen_documents() -> None:
    pairs = evenly(read_split(SAMPLE), 100)
    texts, references = [pair.text for pair in pairs], [pair.summary for pair in pairs]
    completions = summarise(Engine.load("summarizer", dtype="fp32"), texts, Decoding())
    summaries = [completion.text for completion in completions]
    best = max(rouge(extracts, references)["rougeL"] for extracts in baselines(texts).values())
    assert rouge(summaries, references)["rougeL"] > best

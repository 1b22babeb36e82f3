"""The summariser's tokenizer is lossless, and no text encodes into a special token."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from raydiff.train.tokenizer import BEGIN_ID, END_ID, MASK_ID, save_tokenizer, train_tokenizer

TEXTS = ["a small tool for small things", "Tools\nand   MORE tools", "Größe, naïve"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, vocab_size=320)


@pytest.mark.parametrize("text", [*TEXTS, "", " ", "\x00\t\r\n", "日本語 🙂", "  Two  spaces "])
def test_any_text_decodes_to_itself(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_encoding_frames_a_document(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("tool").ids
    assert (ids[0], ids[-1]) == (BEGIN_ID, END_ID)


def test_a_literal_special_token_can_be_kept_as_text(tokenizer: Tokenizer) -> None:
    literal = Tokenizer.from_str(tokenizer.to_str())
    literal.encode_special_tokens = True
    ids = literal.encode("see <|mask|> here", add_special_tokens=False).ids
    assert MASK_ID not in ids
    assert literal.decode(ids) == "see <|mask|> here"


def test_saved_files_load_with_auto_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(str(tmp_path))
    assert loaded("tool")["input_ids"] == tokenizer.encode("tool").ids
    assert (loaded.mask_token_id, loaded.eos_token_id) == (MASK_ID, END_ID)


def test_a_lower_case_tokenizer_loses_the_case_and_nothing_else() -> None:
    lower = train_tokenizer(TEXTS, vocab_size=320, lower=True)
    ids = lower.encode("Two  MORE Größen", add_special_tokens=False).ids
    assert lower.decode(ids) == "two  more größen"

"""The tokenizer of models with random weights."""

from __future__ import annotations

import pytest

from raydiff.families.presets import PREFIX, PRESETS
from raydiff.text import Tokenizer

TINY = [name for name in PRESETS if name.startswith("tiny-")]


@pytest.mark.parametrize("name", [*TINY, "bert-base", "llada-8b"])
def test_bytes_go_in_and_every_token_reads_as_something(name: str) -> None:
    tokenizer = Tokenizer.load(PREFIX + name)
    spec = tokenizer.spec
    text = "ünï <|mask|> <|end|>\n"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {spec.mask_id, spec.pad_id, *spec.end_ids} & set(ids)
    assert max(ids) < spec.vocab_size
    ordinary = next(i for i in range(spec.vocab_size - 1, 0, -1) if i not in spec.end_ids)
    for special in (spec.mask_id, spec.pad_id, *spec.end_ids, ordinary):
        assert tokenizer.decode([special]).strip("\ufffd")

